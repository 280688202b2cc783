//! How a command ends badly: what is said, what to do next, and the exit code.

use std::{fmt, io::Write};

use mesh_client::Error;

/// How the process ends, as scripts see it (`docs/cli.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Anything that is none of the others.
    Other,
    /// The command line is wrong.
    Usage,
    /// The server refused what it was sent: 400, 409, 413, 415.
    Refused,
    /// What was asked for is not there: 404, 410.
    Missing,
    /// The server cannot be reached, or cannot do it now: no connection, no answer, 429, 503, 507.
    Unavailable,
    /// No or no sufficient right: 401, 403.
    NoRight,
}

impl Outcome {
    /// The exit code; the numbers are those of `sysexits.h`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Other => 1,
            Self::Usage => 64,
            Self::Refused => 65,
            Self::Missing => 66,
            Self::Unavailable => 69,
            Self::NoRight => 77,
        }
    }
}

/// Why a command did not do what it says.
#[derive(Debug)]
pub(crate) struct Failure {
    outcome: Outcome,
    text: String,
    /// The next step.
    advice: Option<String>,
}

impl Failure {
    pub(crate) fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self { outcome, text: text.into(), advice: None }
    }

    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self::new(Outcome::Other, text)
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Outcome::Usage, text)
    }

    #[must_use]
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Only where nothing more fitting was said.
    #[must_use]
    pub(crate) fn or_advice(self, advice: impl Into<String>) -> Self {
        if self.advice.is_some() { self } else { self.advice(advice) }
    }

    pub(crate) const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What a server at `address` answered, or that it did not.
    pub(crate) fn of_server(error: &Error, address: &str, whose: Port) -> Self {
        let outcome = match error {
            Error::Refused { status: 401 | 403, .. } => Outcome::NoRight,
            Error::Refused { status: 404 | 410, .. } => Outcome::Missing,
            Error::Refused { status: 429 | 500.., .. } => Outcome::Unavailable,
            Error::Refused { .. } | Error::Invalid(_) => Outcome::Refused,
            Error::Connect(_) | Error::Lost(_) | Error::Timeout(_) => Outcome::Unavailable,
            Error::Address(_) | Error::Credential | Error::Authorities => Outcome::Usage,
            _ => Outcome::Other,
        };
        let failure = Self::new(outcome, told(error, address));
        match (error, whose) {
            (Error::Connect(_), Port::Traffic) => failure.advice(
                "Is the server running? `eventmesh standalone` starts one; --address names another.",
            ),
            (Error::Connect(_), Port::Admin) => failure.advice(
                "Is the server running? `eventmesh standalone` starts one; --admin-address names another admin port.",
            ),
            (Error::Lost(_), _) => failure.advice("A port that speaks TLS needs https:// in its address, and --ca."),
            (Error::Refused { status: 401, .. }, Port::Traffic) => {
                failure.advice("Give a token with --token-file, --token or EVENTMESH_CLI_TOKEN.")
            }
            (Error::Refused { status: 401, .. }, Port::Admin) => failure.advice(
                "Give the admin token with --token-file, --token or EVENTMESH_CLI_TOKEN; a standalone server keeps one in \
                 <data.dir>/admin.token.",
            ),
            // A group that is not there has the same code.
            (Error::Refused { status: 404, code, message, .. }, _)
                if code == "not_found" && message.contains("such route") =>
            {
                failure.advice("Is that the right port? Traffic is 10105 by default, administration 10106.")
            }
            _ => failure,
        }
    }
}

/// Which of the two ports was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// Where events go in and out.
    Traffic,
    /// Where operators ask.
    Admin,
}

fn told(error: &Error, address: &str) -> String {
    let mut text = match error {
        Error::Refused { message, code, status, .. } if message.is_empty() => {
            format!("{status} {code} from {address}")
        }
        Error::Refused { message, .. } => message.clone(),
        Error::Connect(_) | Error::Lost(_) | Error::Timeout(_) => format!("{address}: {error}"),
        other => other.to_string(),
    };
    // What lies below says more than its summary: "connection refused", a certificate that is not trusted.
    let mut cause = std::error::Error::source(error);
    let mut last = None;
    while let Some(inner) = cause {
        last = Some(inner.to_string());
        cause = inner.source();
    }
    if let Some(last) = last {
        text.push_str(&format!(" ({last})"));
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())?;
        match &self.advice {
            Some(advice) => write!(f, "\n{advice}"),
            None => Ok(()),
        }
    }
}

/// Prints a line to the standard error, or nowhere when that is closed.
pub(crate) fn complain(line: &str) {
    drop(std::io::stderr().write_all(format!("{line}\n").as_bytes()));
}
