//! A server that a suite measures: a child process, ended and cleared away with its handle.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

/// A server under measurement.
pub(crate) struct Subject {
    child: Child,
    /// Where it takes events, `host:port`.
    pub(crate) address: String,
    /// Cleared away after it.
    _folder: Option<Folder>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::debug!(%error, "the server had ended");
        }
    }
}

/// A folder for one server, cleared away with its handle.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty one.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("eventmesh-bench-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "could not remove");
        }
    }
}

impl Subject {
    /// Its process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The bare endpoint.
    pub(crate) async fn bare() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "bare"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().context("its output is piped")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the bare server ended")?;
        let address = line.rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(Self { child, address, _folder: None })
    }

    /// A mesh that is ready, with a data directory of its own.
    pub(crate) async fn mesh(storage: &str) -> anyhow::Result<Self> {
        Self::mesh_in(Folder::make()?, storage, &[]).await
    }

    /// A mesh that is ready, with these further settings, each `key=value`, and its data in that folder.
    pub(crate) async fn mesh_in(folder: Folder, storage: &str, settings: &[String]) -> anyhow::Result<Self> {
        let (http, admin) = (free_port()?, free_port()?);
        let child = Command::new(std::env::current_exe()?)
            .arg("standalone")
            .arg(format!("-Deventmesh.storage.type={storage}"))
            .arg(format!("-Deventmesh.data.dir={}", folder.path().join("data").display()))
            .arg(format!("-Deventmesh.http.port={http}"))
            .arg(format!("-Deventmesh.admin.port={admin}"))
            .arg("-Deventmesh.log.level=error")
            .args(settings.iter().map(|setting| format!("-D{setting}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut subject = Self { child, address: format!("127.0.0.1:{http}"), _folder: Some(folder) };
        for _ in 0..600 {
            if TcpStream::connect(&subject.address).await.is_ok() && ready(admin).await {
                return Ok(subject);
            }
            if let Some(status) = subject.child.try_wait()? {
                bail!("the server ended at start: {status}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the server was not ready within 30 s")
    }
}

async fn ready(admin: u16) -> bool {
    let Ok(mut connection) = super::raw::Connection::open(&format!("127.0.0.1:{admin}")).await else {
        return false;
    };
    let request = b"GET /admin/ready HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection.exchange(request).await.is_ok_and(|answer| answer.status == 200)
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The middle one.
pub(crate) fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("figures are numbers"));
    values[values.len() / 2]
}
