//! Where the server is, by which right it is asked, and in which form the answer is printed.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use mesh_base::nearest;
use mesh_client::{AdminClient, Client, ClientBuilder, Error, RetryPolicy};

use crate::problem::{Failure, Port};

/// How the names of the variables begin.
const PREFIX: &str = "EVENTMESH_CLI_";

/// What every command of users takes. Each has a variable of the same name, `EVENTMESH_CLI_…`; what is typed wins.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct Connect {
    /// The traffic port, a URL or HOST:PORT [default: where a local standalone listens]
    #[arg(long, value_name = "URL|HOST:PORT")]
    address: Option<String>,
    /// The admin port, a URL or HOST:PORT [default: where a local standalone listens]
    #[arg(long, value_name = "URL|HOST:PORT")]
    admin_address: Option<String>,
    /// The bearer token. Others on the machine can see it: prefer a file or EVENTMESH_CLI_TOKEN
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// A file with the bearer token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The token for the admin port, where it is another one
    #[arg(long, value_name = "TOKEN", conflicts_with = "admin_token_file")]
    admin_token: Option<String>,
    /// A file with the token for the admin port
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Who signs the server's certificate, PEM [default: whom the system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// For people, or a JSON value a line for programs
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    /// A file with the configuration of the local server, to find it by
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A key of the configuration of the local server and its value, to find it by
    #[arg(short = 'D', value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub definitions: Vec<String>,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    #[default]
    Table,
    /// A JSON value a line.
    Json,
}

/// Where a server on this machine would be, as the configuration of a `standalone` says.
#[derive(Clone, Debug)]
pub struct Local {
    /// Its traffic port, `http://host:port`.
    pub address: String,
    /// Its admin port.
    pub admin_address: String,
    /// The configured admin token.
    pub admin_token: Option<String>,
    /// Where it keeps the token that it made itself.
    pub admin_token_file: PathBuf,
}

impl Connect {
    pub(crate) fn form(&self) -> Result<Form, Failure> {
        match (self.output, variable("OUTPUT")) {
            (Some(form), _) => Ok(form),
            (None, None) => Ok(Form::default()),
            (None, Some(word)) => Form::from_str(&word, false).map_err(|_| {
                Failure::usage(format!("EVENTMESH_CLI_OUTPUT is {word:?}, and must be table or json"))
            }),
        }
    }

    /// A client of the traffic port, and its address for messages.
    pub(crate) fn traffic(&self, local: &Local) -> Result<(Client, String), Failure> {
        let given = self.address.clone().or_else(|| variable("ADDRESS"));
        let address = given.map_or_else(|| local.address.clone(), |given| url(&given));
        let builder = self.builder(&address)?;
        let builder = match self.token()? {
            Some(token) => builder.credential(format!("Bearer {token}")),
            None => builder,
        };
        let client = builder.build().map_err(|error| Failure::of_server(&error, &address, Port::Traffic))?;
        Ok((client, address))
    }

    /// A client of the admin port.
    pub(crate) fn admin(&self, local: &Local) -> Result<Admin, Failure> {
        let given = self.admin_address.clone().or_else(|| variable("ADMIN_ADDRESS"));
        let address = given.map_or_else(|| local.admin_address.clone(), |given| url(&given));
        let mut builder = self.builder(&address)?;
        let token = match self.admin_token()? {
            // The token of the server on this machine is for nobody else's eyes.
            None if is_of_this_machine(&address) => local_token(local)?,
            given => given,
        };
        if let Some(token) = token {
            builder = builder.credential(format!("Bearer {token}"));
        }
        match builder.build_admin() {
            Ok(client) => Ok(Admin { client, address }),
            Err(error) => Err(Failure::of_server(&error, &address, Port::Admin)),
        }
    }

    fn builder(&self, address: &str) -> Result<ClientBuilder, Failure> {
        // A person at a terminal sees what happened, and tries again.
        let builder = Client::builder(address).retry(RetryPolicy::never());
        match self.ca.clone().or_else(|| variable("CA").map(PathBuf::from)) {
            Some(path) => Ok(builder.authorities(read(&path, "--ca")?)),
            None => Ok(builder),
        }
    }

    /// The token: what is typed beats the variables, a value beats a file.
    fn token(&self) -> Result<Option<String>, Failure> {
        match typed(self.token.as_ref(), self.token_file.as_ref(), "--token-file")? {
            None => of_variables("TOKEN"),
            given => Ok(given),
        }
    }

    /// The token for the admin port: what names it beats what does not, of what is typed and then of the variables.
    fn admin_token(&self) -> Result<Option<String>, Failure> {
        let own = typed(self.admin_token.as_ref(), self.admin_token_file.as_ref(), "--admin-token-file")?;
        let typed = match own {
            None => typed(self.token.as_ref(), self.token_file.as_ref(), "--token-file")?,
            given => given,
        };
        match typed {
            None => match of_variables("ADMIN_TOKEN")? {
                None => of_variables("TOKEN"),
                given => Ok(given),
            },
            given => Ok(given),
        }
    }
}

fn typed(token: Option<&String>, file: Option<&PathBuf>, what: &str) -> Result<Option<String>, Failure> {
    match (token, file) {
        (Some(token), _) => Ok(Some(token.trim().to_owned())),
        (None, Some(path)) => of_file(path, what).map(Some),
        (None, None) => Ok(None),
    }
}

/// A token of `EVENTMESH_CLI_<name>`, or of the file that `EVENTMESH_CLI_<name>_FILE` names.
fn of_variables(name: &str) -> Result<Option<String>, Failure> {
    if let Some(token) = variable(name) {
        return Ok(Some(token));
    }
    let file = format!("{name}_FILE");
    match variable(&file) {
        Some(path) => of_file(Path::new(&path), &format!("EVENTMESH_CLI_{file}")).map(Some),
        None => Ok(None),
    }
}

/// The admin port with its address for messages.
pub(crate) struct Admin {
    pub(crate) client: AdminClient,
    address: String,
}

impl Admin {
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::of_server(error, &self.address, Port::Admin)
    }
}

/// The variables of these commands, behind `EVENTMESH_CLI_`.
const VARIABLES: [&str; 8] =
    ["ADDRESS", "ADMIN_ADDRESS", "TOKEN", "TOKEN_FILE", "ADMIN_TOKEN", "ADMIN_TOKEN_FILE", "CA", "OUTPUT"];

/// A sentence for each variable that begins as ours do and is none of them.
pub(crate) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let known: Vec<String> = VARIABLES.iter().map(|name| format!("{PREFIX}{name}")).collect();
    names
        .filter(|name| name.starts_with(PREFIX) && !known.contains(name))
        .map(|name| {
            let near = nearest(&name, known.iter().map(String::as_str));
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("the variable {name} is not known and is ignored{hint}")
        })
        .collect()
}

/// A variable of the environment that is not blank.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(format!("{PREFIX}{name}")).ok()?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn read(path: &Path, what: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{what}: {}: {error}", path.display())))
}

fn of_file(path: &Path, what: &str) -> Result<String, Failure> {
    let token = read(path, what)?.trim().to_owned();
    if token.is_empty() {
        return Err(Failure::usage(format!("{what}: {} has no token in it", path.display())));
    }
    Ok(token)
}

/// The token of the server on this machine, configured or made by itself; `None`: there is no such file.
fn local_token(local: &Local) -> Result<Option<String>, Failure> {
    if let Some(token) = &local.admin_token {
        return Ok(Some(token.clone()));
    }
    if !local.admin_token_file.exists() {
        return Ok(None);
    }
    of_file(&local.admin_token_file, "the admin token of the local server").map(Some)
}

/// `HOST:PORT` is a URL without TLS.
fn url(given: &str) -> String {
    if given.contains("://") { given.to_owned() } else { format!("http://{given}") }
}

fn is_of_this_machine(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_this_machine_goes_to_this_machine_alone() {
        for (address, expected) in [
            ("http://127.0.0.1:10106", true),
            ("http://localhost:10106", true),
            ("https://[::1]:10106/", true),
            ("http://127.9.9.9", true),
            ("http://mesh.example:10106", false),
            ("http://localhost.example:10106", false),
            ("http://127.0.0.1.example:1", false),
            ("http://10.0.0.1:10106", false),
            ("http://evil.example/127.0.0.1:1", false),
            ("http://evil.example?@127.0.0.1:1", false),
            ("http://127.0.0.1@evil.example:1", false),
        ] {
            assert_eq!(is_of_this_machine(address), expected, "{address}");
        }
    }

    #[test]
    fn a_misspelt_variable_is_told_with_the_nearest() {
        let names = ["EVENTMESH_CLI_ADRESS", "EVENTMESH_CLI_TOKEN_FILE", "EVENTMESH_HTTP_PORT", "PATH"];
        assert_eq!(
            unknown_variables(names.into_iter().map(str::to_owned)),
            [
                "the variable EVENTMESH_CLI_ADRESS is not known and is ignored; did you mean EVENTMESH_CLI_ADDRESS?"
            ]
        );
    }

    #[test]
    fn an_address_without_a_scheme_is_one_without_tls() {
        assert_eq!(url("mesh:10105"), "http://mesh:10105");
        assert_eq!(url("https://mesh:10105"), "https://mesh:10105");
    }
}
