//! What a person types: `pub` and `sub` on the client library, `topic`, `group`, `dlq` and `health` on the admin port.
//!
//! * [`UserCommand`] is what `clap` reads; [`run`] does it and says how the process ends ([`Outcome`], `docs/cli.md`).
//! * What is printed for programs is JSON, a value a line; what is for people is a table, in which nothing an event carries
//!   can steer a terminal (`output`).
//! * Errors end with the next step (`problem`).

mod connect;
mod dlq;
mod group;
mod health;
mod output;
mod problem;
mod publish;
mod subscribe;
mod topic;

use std::process::ExitCode;

use clap::Subcommand;

pub use connect::{Connect, Local};
pub use problem::Outcome;

use problem::{Failure, complain};

/// The commands of users.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Publish events to a topic
    Pub(publish::Publish),
    /// Receive the events of a topic and print them, or hand each to a command
    Sub(subscribe::Subscribe),
    /// Look at topics, make and delete them
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Look at groups and their lag, move them, remove them
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Look at dead letters, replay and discard them
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Ask whether the server is ready: exit code 0 when it is, 69 when it is not
    Health(health::Health),
}

impl UserCommand {
    /// Where the server is and how to speak to it.
    pub fn connect(&self) -> &Connect {
        match self {
            Self::Pub(publish) => &publish.connect,
            Self::Sub(subscribe) => &subscribe.connect,
            Self::Topic(topic) => topic.connect(),
            Self::Group(group) => group.connect(),
            Self::Dlq(dlq) => dlq.connect(),
            Self::Health(health) => &health.connect,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Pub(_) => "pub",
            Self::Sub(_) => "sub",
            Self::Topic(_) => "topic",
            Self::Group(_) => "group",
            Self::Dlq(_) => "dlq",
            Self::Health(_) => "health",
        }
    }
}

/// Does what was typed. `local` is where a server on this machine would be.
pub fn run(command: UserCommand, local: &Local) -> ExitCode {
    let name = command.name();
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for told in connect::unknown_variables(variables) {
        complain(&format!("eventmesh {name}: {told}"));
    }
    let done = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let done = runtime.block_on(act(command, local));
            // An output that nobody reads does not hold up the end.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::other(format!("there is no runtime: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&format!("eventmesh {name}: {failure}"));
            ExitCode::from(failure.outcome().code())
        }
    }
}

async fn act(command: UserCommand, local: &Local) -> Result<(), Failure> {
    match command {
        UserCommand::Pub(publish) => publish.run(local).await,
        UserCommand::Sub(subscribe) => subscribe.run(local).await,
        UserCommand::Topic(topic) => topic.run(local).await,
        UserCommand::Group(group) => group.run(local).await,
        UserCommand::Dlq(dlq) => dlq.run(local).await,
        UserCommand::Health(health) => health.run(local).await,
    }
}
