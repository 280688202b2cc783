//! The server as a child process: started, killed, stopped, and started again on the same directory.
//!
//! What it prints goes to a file beside its data directory. When a server goes out of use the end of that file
//! is printed, which the test runner shows for failed tests. A child never outlives its [`Server`].

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    Client, TOKEN, free_port,
    process::{binary, command},
    until,
};

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(60);

/// One server.
#[derive(Debug)]
pub struct Server {
    home: Arc<TempDir>,
    data: PathBuf,
    mode: &'static str,
    keys: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    open_files: Option<u32>,
    bears_file_limits: bool,
    has_admin_token: bool,
    logs_to_pipe: bool,
    umask: Option<&'static str>,
    ports: (u16, u16),
    keeps_ports: bool,
    child: Option<Child>,
}

impl Server {
    /// A server that was not started yet, in a directory of its own.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new() -> Result<Self> {
        let home = tempfile::Builder::new().prefix("mesh-").tempdir()?;
        let data = home.path().join("data");
        Ok(Self {
            home: Arc::new(home),
            data,
            mode: "standalone",
            keys: BTreeMap::new(),
            environment: BTreeMap::new(),
            open_files: None,
            bears_file_limits: false,
            has_admin_token: true,
            logs_to_pipe: false,
            umask: None,
            ports: (0, 0),
            keeps_ports: false,
            child: None,
        })
    }

    /// The same on another data directory, which must outlive it.
    #[must_use]
    pub fn data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = directory.into();
        self
    }

    /// The same with a key of the configuration, from the next start on.
    #[must_use]
    pub fn key(mut self, name: &str, value: impl ToString) -> Self {
        self.keys.insert(name.to_owned(), value.to_string());
        self
    }

    /// The same at its ports of the start before, from its second start on.
    #[must_use]
    pub fn keeping_ports(mut self) -> Self {
        self.keeps_ports = true;
        self
    }

    /// The same with a variable of the environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same with at most so many open files.
    #[must_use]
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// The same, made to see a limit on the size of its files as an error of the write and not as its end.
    #[must_use]
    pub fn bearing_file_limits(mut self) -> Self {
        self.bears_file_limits = true;
        self
    }

    /// Limits the size of every file that the running process writes from now on; `None` lifts the limit.
    ///
    /// # Errors
    /// When there is no process, or the system refuses.
    pub fn limit_files(&self, most_bytes: Option<u64>) -> Result<()> {
        let pid = self.pid().context("it runs")?.to_string();
        let most = most_bytes.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
        // The colon leaves the hard limit as it is, so that it can be lifted again.
        let output = std::process::Command::new("prlimit")
            .args(["--pid", &pid, &format!("--fsize={most}:")])
            .output()?;
        if !output.status.success() {
            bail!("prlimit said: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// The same without the admin token that every other server of the tests has.
    #[must_use]
    pub fn without_admin_token(mut self) -> Self {
        self.has_admin_token = false;
        self
    }

    /// The same, started with this umask, in octal.
    #[must_use]
    pub fn umask(mut self, mask: &'static str) -> Self {
        self.umask = Some(mask);
        self
    }

    /// The same, whose log goes into a pipe that [`Server::take_log_pipe`] gives.
    #[must_use]
    pub fn logging_to_a_pipe(mut self) -> Self {
        self.logs_to_pipe = true;
        self
    }

    /// The end of the pipe that the log of the running process goes into; once a start.
    pub fn take_log_pipe(&mut self) -> Option<ChildStdout> {
        self.child.as_mut()?.stdout.take()
    }

    /// Starts the process and waits for nothing. Its ports are new ones unless it keeps them.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        self.kill9();
        if !self.keeps_ports || self.ports.0 == 0 {
            self.ports = (free_port(), free_port());
        }
        let mut arguments = vec![
            self.mode.to_owned(),
            format!("-Deventmesh.data.dir={}", self.data.display()),
            format!("-Deventmesh.http.port={}", self.ports.0),
            format!("-Deventmesh.admin.port={}", self.ports.1),
        ];
        arguments.extend(self.has_admin_token.then(|| format!("-Deventmesh.admin.token={TOKEN}")));
        arguments.extend(self.keys.iter().map(|(key, value)| format!("-D{key}={value}")));
        let binary = binary();
        let mut before = String::new();
        if let Some(most) = self.open_files {
            before.push_str(&format!("ulimit -n {most}; "));
        }
        if let Some(mask) = self.umask {
            before.push_str(&format!("umask {mask}; "));
        }
        if self.bears_file_limits {
            before.push_str("trap '' XFSZ; ");
        }
        let mut command = if before.is_empty() {
            command(&binary, self.home.path())
        } else {
            let mut shell = command(Path::new("/bin/sh"), self.home.path());
            shell.arg("-c").arg(format!("{before}exec \"$0\" \"$@\"")).arg(&binary);
            shell
        };
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let errors: File = log.try_clone()?;
        let output = if self.logs_to_pipe { Stdio::piped() } else { log.into() };
        command.args(arguments).envs(&self.environment).stdout(output).stderr(errors);
        self.child = Some(command.spawn().with_context(|| format!("cannot start {}", binary.display()))?);
        Ok(())
    }

    /// Starts the process and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time.
    pub async fn start(&mut self) -> Result<Client> {
        self.spawn()?;
        let client = self.client();
        let end = tokio::time::Instant::now() + START;
        loop {
            if let Some(status) = self.exited()? {
                bail!("the server ended with {status} instead of starting:\n{}", self.log_end(30));
            }
            if client.admin_with("GET", "/admin/ready", &[]).await.is_ok_and(|reply| reply.status == 200) {
                return Ok(client);
            }
            if tokio::time::Instant::now() >= end {
                bail!("waited {START:?} in vain for /admin/ready:\n{}", self.log_end(30));
            }
            crate::pause(Duration::from_millis(20)).await;
        }
    }

    /// A new client of the running process.
    pub fn client(&self) -> Client {
        Client::new(self.ports.0, self.ports.1)
    }

    /// The traffic port.
    pub fn traffic_port(&self) -> u16 {
        self.ports.0
    }

    /// The admin port.
    pub fn admin_port(&self) -> u16 {
        self.ports.1
    }

    /// The process id while there is a process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Resident memory of the process in KiB.
    ///
    /// # Errors
    /// When there is no process.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid().context("it runs")?))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS")).context("VmRSS")?;
        Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
    }

    /// The data directory.
    pub fn data_directory(&self) -> &Path {
        &self.data
    }

    /// The directory that holds log and data.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    /// Everything that all starts so far have printed.
    pub fn log(&self) -> String {
        // Lines are written behind what they tell of.
        std::thread::sleep(Duration::from_millis(20));
        std::fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines of the log.
    pub fn log_end(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Ends the process as `kill -9` does and waits until it is gone.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When there is no process.
    pub fn terminate(&self) -> Result<()> {
        self.send(Signal::TERM)
    }

    /// Sends SIGHUP.
    ///
    /// # Errors
    /// When there is no process.
    pub fn hang_up(&self) -> Result<()> {
        self.send(Signal::HUP)
    }

    /// Sends SIGUSR1 and SIGUSR2.
    ///
    /// # Errors
    /// When there is no process.
    pub fn send_user_signals(&self) -> Result<()> {
        self.send(Signal::USR1)?;
        self.send(Signal::USR2)
    }

    fn send(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the server does not run")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, signal).with_context(|| format!("cannot send {signal:?}"))
    }

    /// How the process ended, if it did.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.as_mut().map_or(Ok(None), |child| Ok(child.try_wait()?))
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// When it still runs after `most`.
    pub async fn wait_exit(&mut self, most: Duration) -> Result<ExitStatus> {
        let child = self.child.as_mut().context("the server does not run")?;
        let ended = until("the server to end", most, async || child.try_wait().ok().flatten()).await;
        match ended {
            Ok(status) => {
                self.child = None;
                Ok(status)
            }
            Err(error) => Err(error.context(self.log_end(30))),
        }
    }

    /// Stops the process in order and sees it end with 0.
    ///
    /// # Errors
    /// When it does not.
    pub async fn stop(&mut self) -> Result<()> {
        self.terminate()?;
        let status = self.wait_exit(Duration::from_secs(20)).await?;
        anyhow::ensure!(
            status.code() == Some(0),
            "a planned stop ended with {status}:\n{}",
            self.log_end(30)
        );
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        eprintln!("--- the server's last lines ({}):\n{}", self.data.display(), self.log_end(40));
    }
}
