//! A server process in a directory of its own.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use mesh_client::{Client, RetryPolicy};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(60);

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("EVENTMESH_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "EVENTMESH_BIN names {}, which is not there", path.display());
        return path;
    }
    let test = std::env::current_exe().expect("the system knows which executable runs");
    let beside = test.ancestors().nth(2).map(|profile| profile.join("eventmesh")).unwrap_or_default();
    assert!(
        beside.is_file(),
        "there is no {}: run `cargo build --bin eventmesh` first, or set EVENTMESH_BIN",
        beside.display()
    );
    beside
}

/// A port below those that the system gives to outgoing connections, so that nobody takes it before the child.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() * 17 % 2_700).expect("it is below 2,700");
    let ports = std::iter::repeat_with(|| 30_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 2_700);
    ports
        .take(2_700)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of the ports is free")
}

/// The process; it ends with this.
pub(crate) struct Server {
    home: TempDir,
    ports: [u16; 2],
    /// Whose certificate it shows; `None`: it speaks plainly.
    certificate: Option<String>,
    child: Option<Child>,
}

impl Server {
    /// Started, and answering.
    pub(crate) async fn start() -> Result<Self> {
        let ports = [free_port(), free_port()];
        let home = tempfile::Builder::new().prefix("mesh-client-").tempdir()?;
        let mut server = Self { home, ports, certificate: None, child: None };
        server.restart().await?;
        Ok(server)
    }

    /// Started over TLS with `server.pem` and `server.key`, which `write` puts into the folder that it is given.
    pub(crate) async fn secure(
        certificate: &str,
        write: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Self> {
        let ports = [free_port(), free_port()];
        let home = tempfile::Builder::new().prefix("mesh-client-").tempdir()?;
        write(home.path())?;
        let mut server = Self { home, ports, certificate: Some(certificate.to_owned()), child: None };
        server.restart().await?;
        Ok(server)
    }

    /// Killed if it runs, and started again on the same ports and data.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.kill();
        let log = std::fs::File::create(self.home.path().join("log"))?;
        let mut command = Command::new(binary());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVENTMESH_"))
        {
            command.env_remove(name);
        }
        command
            .arg("standalone")
            .arg(format!("-Deventmesh.data.dir={}", self.home.path().join("data").display()))
            .arg(format!("-Deventmesh.http.port={}", self.ports[0]))
            .arg(format!("-Deventmesh.admin.port={}", self.ports[1]))
            .args(self.certificate.iter().flat_map(|_| {
                ["-Deventmesh.tls.certificate.file=server.pem", "-Deventmesh.tls.key.file=server.key"]
            }))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        self.child = Some(command.spawn().context("the server cannot be started")?);
        let mut probe = Client::builder(self.address()).retry(RetryPolicy::never());
        if let Some(certificate) = &self.certificate {
            probe = probe.authorities(certificate);
        }
        let probe = probe.build()?;
        let end = Instant::now() + START;
        // A client that nobody knows is a clear answer of a server that serves.
        loop {
            let answer = probe.poll("nobody", 1, Duration::ZERO).await;
            if answer.is_err_and(|error| error.code() == Some("unknown_client")) {
                return Ok(());
            }
            if Instant::now() > end
                || self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|s| s.is_some()))
            {
                let log = std::fs::read_to_string(self.home.path().join("log"))?;
                bail!("the server did not start:\n{log}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    pub(crate) fn address(&self) -> String {
        match self.certificate {
            None => format!("http://127.0.0.1:{}", self.ports[0]),
            Some(_) => format!("https://localhost:{}", self.ports[0]),
        }
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::new(self.address())?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
