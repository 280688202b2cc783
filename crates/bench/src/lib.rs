//! `eventmesh bench`: load generators, and suites that measure side by side with a bare server.
//!
//! A generator writes prepared requests on kept connections and reads no more of an answer than it needs, so
//! that most of the machine is left to the server. A suite starts every server it measures as a child
//! process and takes turns between them; its figures are medians over the rounds, and ratios.

mod bare;
mod consume;
mod deliver;
mod deliver_suite;
mod gate_files;
mod gate_suite;
mod memory;
mod process;
mod publish;
mod raw;
mod span;
mod sse;
mod subject;
mod suite;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// What to measure, as the command line says it.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    command: BenchCommand,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Publish to a running server and print the result as JSON
    Publish(publish::PublishLoad),
    /// Poll and acknowledge from a running server and print the result as JSON
    Consume(consume::ConsumeLoad),
    /// Publish at a constant rate to many subscribers and print when they had it as JSON
    Fanout(deliver::DeliverLoad),
    /// Publish at a constant rate to one subscriber and print when it had it as JSON
    Latency(deliver::LatencyLoad),
    /// Serve bare endpoints, one that answers 202 and one that gives what it gets to streams; the yardstick of
    /// the suites
    Bare(bare::BareServer),
    /// Measure publishing, memory and embedded, against the bare endpoint, in turns
    PublishSuite(suite::SuiteOptions),
    /// Measure poll and ack on the embedded log
    ConsumeSuite(suite::SuiteOptions),
    /// Measure the way to 1,000 streams, with and without acks, against bare streams, in turns
    FanoutSuite(suite::SuiteOptions),
    /// Measure the way to one subscriber, by stream and by poll, against a bare stream, in turns
    LatencySuite(deliver_suite::LatencyOptions),
    /// Measure publishing through the whole security gate, against an open one, in turns
    GateSuite(suite::SuiteOptions),
    /// Measure what an idle stream and an idle subscription take, against a bare stream
    MemorySuite(memory::MemoryOptions),
}

/// Runs a bench command and prints its result.
///
/// # Errors
/// When what is measured cannot be started or reached, or answers what it should not.
pub fn run(bench: Bench) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match bench.command {
            BenchCommand::Publish(load) => show(&load.run().await?),
            BenchCommand::Consume(load) => show(&load.run().await?),
            BenchCommand::Fanout(load) => show(&load.run().await?),
            BenchCommand::Latency(load) => show(&load.run().await?),
            BenchCommand::Bare(server) => server.serve().await?,
            BenchCommand::PublishSuite(options) => show(&suite::publish(options).await?),
            BenchCommand::ConsumeSuite(options) => show(&suite::consume(options).await?),
            BenchCommand::FanoutSuite(options) => show(&deliver_suite::fanout(options).await?),
            BenchCommand::LatencySuite(options) => show(&deliver_suite::latency(options).await?),
            BenchCommand::GateSuite(options) => show(&gate_suite::publish(options).await?),
            BenchCommand::MemorySuite(options) => show(&memory::measure(options).await?),
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[expect(clippy::print_stdout, reason = "the result is what the command is for")]
fn show(result: &impl serde::Serialize) {
    println!("{}", serde_json::to_string_pretty(result).expect("a result is plain data"));
}
