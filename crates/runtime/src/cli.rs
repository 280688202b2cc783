//! The command line.
//!
//! Every command takes `-Dkey=value`. Exit codes: 0 when it did what it says, 64 when the command line or the
//! configuration is wrong, 1 for anything else.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use mesh_cli::{Local, UserCommand};

use crate::{
    boot,
    config::{Given, Looked, Mode, Problem, Settings, Warning, look, reference, report, validate},
    logging,
};

/// The exit code for a wrong command line or configuration.
const CONFIGURATION: u8 = 64;

/// How long the end of the process waits for the standard output to take the last lines of the log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// An event mesh: publish CloudEvents over HTTP, get each of them until you acknowledge it.
#[derive(Debug, Parser)]
#[command(name = "eventmesh", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
enum Command {
    /// Start a server with nothing configured: embedded storage, loopback, data in ./data
    Standalone(Sources),
    /// Start a server; its storage must be configured
    Server(Sources),
    #[command(flatten)]
    User(UserCommand),
    /// Look at the configuration without starting anything
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at an audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Measure a server, or everything side by side
    Bench(mesh_bench::Bench),
    /// Print what makes a shell complete these commands: source it, or put it where the shell looks
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
        #[command(flatten)]
        sources: Sources,
    },
    /// Print the version
    Version(Sources),
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Look for lines that were changed, removed, added or moved; exit code 1 where there are any
    Verify {
        /// The newest file of the log; the older ones stand beside it
        file: PathBuf,
        #[command(flatten)]
        sources: Sources,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Report every problem of the configuration
    Check(Inspect),
    /// Print every key with the value that holds and where it comes from
    Show(Inspect),
    /// Print the documentation of every key
    Reference {
        /// What to print
        #[arg(long, value_enum, default_value_t = Format::Properties)]
        format: Format,
        #[command(flatten)]
        sources: Sources,
    },
}

#[derive(Debug, Args)]
struct Inspect {
    /// Judge as `eventmesh standalone` would; otherwise as `eventmesh server`
    #[arg(long)]
    standalone: bool,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// The properties file with every key commented out
    Properties,
    /// The reference page
    Markdown,
}

/// Where the configuration comes from; the environment is always one of the sources.
#[derive(Debug, Args)]
struct Sources {
    /// A file in the Java properties format
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A key and its value; beats the environment, which beats the file
    #[arg(short = 'D', value_name = "KEY=VALUE", allow_hyphen_values = true)]
    definitions: Vec<String>,
}

impl Sources {
    fn validate(&self, mode: Mode) -> Result<(Settings, Vec<Warning>), Vec<Problem>> {
        validate(self.given(), mode)
    }

    fn given(&self) -> Given {
        let mut given = Given::new();
        if let Some(path) = &self.config {
            given = given.with_file(path);
        }
        given = given.with_environment(std::env::vars_os());
        given.with_definitions(self.definitions.iter().map(String::as_str))
    }
}

/// Does what the command line says; the result is how the process ends.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version are answers, not errors; when nobody reads them there is nothing to do.
            drop(answer.print());
            return if answer.use_stderr() { ExitCode::from(CONFIGURATION) } else { ExitCode::SUCCESS };
        }
    };
    match cli.command {
        Command::Standalone(sources) => start(&sources, Mode::Standalone),
        Command::Server(sources) => start(&sources, Mode::Server),
        Command::User(command) => {
            let local = local(command.connect());
            mesh_cli::run(command, &local)
        }
        Command::Completion { shell, .. } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "eventmesh", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Config(ConfigCommand::Check(inspect)) => inspect.check(),
        Command::Config(ConfigCommand::Show(inspect)) => inspect.show(),
        Command::Config(ConfigCommand::Reference { format: Format::Properties, .. }) => {
            print(&reference::properties())
        }
        Command::Config(ConfigCommand::Reference { format: Format::Markdown, .. }) => {
            print(&reference::markdown())
        }
        Command::Audit(AuditCommand::Verify { file, .. }) => verify_audit(&file),
        Command::Bench(command) => match mesh_bench::run(command) {
            Ok(code) => code,
            Err(error) => {
                complain(&format!("eventmesh bench: {error:#}\n"));
                ExitCode::FAILURE
            }
        },
        Command::Version(_) => print(concat!("eventmesh ", env!("CARGO_PKG_VERSION"), "\n")),
    }
}

/// Where a `standalone` of this configuration would be reached from this machine. What is wrong with the configuration is
/// for the server to say.
fn local(connect: &mesh_cli::Connect) -> Local {
    let sources = Sources { config: connect.config.clone(), definitions: connect.definitions.clone() };
    let settings = look(sources.given(), Mode::Standalone).settings;
    let tls = settings.tls.as_ref();
    let url = |host: &str, port: u16, secure: bool| {
        let scheme = if secure { "https" } else { "http" };
        // One that listens on every address is reached at this machine's own.
        let host = match host {
            "0.0.0.0" => "127.0.0.1".to_owned(),
            "::" => "[::1]".to_owned(),
            host if host.contains(':') => format!("[{host}]"),
            host => host.to_owned(),
        };
        format!("{scheme}://{host}:{port}")
    };
    Local {
        address: url(&settings.http.host, settings.http.port, tls.is_some()),
        admin_address: url(&settings.admin.host, settings.admin.port, tls.is_some_and(|tls| tls.admin)),
        admin_token: settings.admin.token.as_ref().map(|token| token.expose().to_owned()),
        admin_token_file: settings.storage.data_dir.join(boot::ADMIN_TOKEN_FILE),
    }
}

impl Inspect {
    fn mode(&self) -> Mode {
        if self.standalone { Mode::Standalone } else { Mode::Server }
    }

    /// Reads every key and opens every file that a start would open.
    fn check(&self) -> ExitCode {
        let mode = self.mode();
        let Looked { settings, warnings, mut problems } = look(self.sources.given(), mode);
        problems.extend(boot::check(&settings));
        tell(&warnings);
        if problems.is_empty() {
            return print(&format!("The configuration is valid for `eventmesh {mode}`.\n"));
        }
        self.refuse(&problems)
    }

    /// Prints every key with the value that holds, also beside ones that cannot be read.
    fn show(&self) -> ExitCode {
        let Looked { settings, warnings, problems } = look(self.sources.given(), self.mode());
        tell(&warnings);
        let printed =
            print(&settings.effective().iter().map(|effective| format!("{effective}\n")).collect::<String>());
        if problems.is_empty() { printed } else { self.refuse(&problems) }
    }

    fn refuse(&self, problems: &[Problem]) -> ExitCode {
        let code = refuse(problems);
        if !self.standalone {
            complain(
                "Judged as `eventmesh server`; with --standalone as `eventmesh standalone`, which has more defaults.\n",
            );
        }
        code
    }
}

fn verify_audit(file: &Path) -> ExitCode {
    let report = match mesh_gate::verify_audit(file) {
        Ok(report) => report,
        Err(error) => {
            complain(&format!("eventmesh audit: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let mut text = if report.lines == 0 {
        "The audit log has no lines yet.\n".to_owned()
    } else {
        format!(
            "The audit log holds together: {} lines in {} files, number {} to {}.\nThe hash of the last line is {}.\n",
            report.lines, report.files, report.first, report.last, report.hash
        )
    };
    let told = [
        (report.first > 1, format!("Lines before number {} are in files that are gone.", report.first)),
        (report.recovered > 0, format!("Damage was found at a start {} times.", report.recovered)),
        (report.lost > 0, format!("The log says that {} records were lost.", report.lost)),
        (
            report.unfinished > 0,
            format!("The last {} bytes are a line that is not finished.", report.unfinished),
        ),
        (!report.has_head, "The head is missing: lines may have been cut off the end.".to_owned()),
    ];
    for (_, sentence) in told.into_iter().filter(|(holds, _)| *holds) {
        text.push_str(&sentence);
        text.push('\n');
    }
    print(&text)
}

fn start(sources: &Sources, mode: Mode) -> ExitCode {
    let (settings, warnings) = match sources.validate(mode) {
        Ok(valid) => valid,
        Err(problems) => return refuse(&problems),
    };
    let log = logging::start(&settings.log);
    let code = match boot::run(settings, mode, &log, &warnings) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("the start or the run failed: {error:#}");
            ExitCode::FAILURE
        }
    };
    log.flush(LAST_LINES);
    code
}

fn tell(warnings: &[Warning]) {
    for warning in warnings {
        complain(&format!("warning: {warning}\n"));
    }
}

fn refuse(problems: &[Problem]) -> ExitCode {
    complain(&report(problems));
    ExitCode::from(CONFIGURATION)
}

/// Prints to the standard output; a reader that went away is not our failure.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Prints to the standard error, or nowhere when that is closed.
fn complain(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn definitions_work_glued_and_apart_on_every_command() {
        for command in [
            &["standalone"][..],
            &["server"],
            &["version"],
            &["config", "check"],
            &["config", "show"],
            &["config", "reference"],
            &["audit", "verify", "file"],
            &["completion", "bash"],
            &["pub", "orders", "{}"],
            &["sub", "orders"],
            &["topic", "list"],
            &["group", "seek", "orders", "printers", "--to", "earliest"],
            &["dlq", "browse", "orders"],
            &["health"],
        ] {
            let arguments = ["eventmesh"]
                .into_iter()
                .chain(command.iter().copied())
                .chain(["-Da.b=c", "-D", "d=-1", "-De="]);
            let sources = match Cli::try_parse_from(arguments).map(|cli| cli.command) {
                Ok(Command::Standalone(sources) | Command::Server(sources) | Command::Version(sources)) => {
                    sources
                }
                Ok(Command::Config(ConfigCommand::Check(inspect) | ConfigCommand::Show(inspect))) => {
                    inspect.sources
                }
                Ok(Command::Config(ConfigCommand::Reference { sources, .. })) => sources,
                Ok(Command::Audit(AuditCommand::Verify { sources, .. })) => sources,
                Ok(Command::Completion { sources, .. }) => sources,
                Ok(Command::User(command)) => {
                    let connect = command.connect();
                    Sources { config: connect.config.clone(), definitions: connect.definitions.clone() }
                }
                Ok(Command::Bench(_)) => panic!("{command:?} is no bench"),
                Err(error) => panic!("{command:?}: {error}"),
            };
            assert_eq!(sources.definitions, ["a.b=c", "d=-1", "e="], "{command:?}");
        }
    }
}
