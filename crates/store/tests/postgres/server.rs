//! A private PostgreSQL from Debian's package, with a folder and a port of its own.
//!
//! The server stops with the last test that uses it, even if that panics, and when the process is
//! killed. Its files are removed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// The server that tests of this process share.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// A server that runs until the last handle is dropped.
pub(crate) type Shared = Arc<Server>;

/// The server of this process: the running one, or a new one.
pub(crate) fn shared() -> Shared {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(Server::start());
    *shared = Arc::downgrade(&server);
    server
}

/// A running server.
pub(crate) struct Server {
    port: u16,
    folder: tempfile::TempDir,
    orders: mpsc::Sender<Order>,
    keeper: Option<thread::JoinHandle<()>>,
}

enum Order {
    /// Stop the server with this signal, start it again, then answer.
    Restart(&'static str, mpsc::Sender<()>),
    /// Kill the server, then answer.
    Kill(mpsc::Sender<()>),
    Stop,
}

impl Server {
    /// Starts a server with empty databases.
    pub(crate) fn start() -> Self {
        Server::start_in(&[])
    }

    /// Starts a server with these environment variables.
    pub(crate) fn start_in(variables: &[(&str, &str)]) -> Self {
        Server::start_with(&[], variables, |_| {})
    }

    /// Starts a server that offers TLS.
    pub(crate) fn start_with_tls(certificate: &str, key: &str) -> Self {
        Server::start_with(&["ssl=on"], &[], |data| {
            for (name, text) in [("server.crt", certificate), ("server.key", key)] {
                let path = data.join(name);
                std::fs::write(&path, text).unwrap();
                run(Command::new("chmod").arg("600").arg(&path));
                run(Command::new("chown").arg("--reference").arg(data).arg(&path));
            }
        })
    }

    /// Starts a server with additional settings, environment variables and files.
    fn start_with(settings: &[&str], variables: &[(&str, &str)], fill: impl FnOnce(&Path)) -> Self {
        let folder = folder();
        let data = folder.path().join("data");
        run(Command::new("cp").arg("-a").arg(template()).arg(&data));
        fill(&data);
        let server = Server::keep_in(folder, settings, variables);
        server.sql("postgres", "CREATE ROLE postrider LOGIN");
        server
    }

    /// Starts a standby of another server, from a copy of its data.
    pub(crate) fn standby_of(primary: &Server) -> Self {
        let folder = folder();
        run(Command::new("chmod").arg("777").arg(folder.path()));
        let mut copy = as_ordinary_user(&program("pg_basebackup"), &[]);
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-c", "fast", "-X", "stream", "-p"]);
        copy.arg(primary.port.to_string()).arg("-D").arg(folder.path().join("data"));
        run(copy.current_dir("/"));
        Server::keep_in(folder, &[], &[])
    }

    /// Starts a server on the data in a folder.
    fn keep_in(folder: tempfile::TempDir, settings: &[&str], variables: &[(&str, &str)]) -> Self {
        let data = folder.path().join("data");
        let port = free_port();
        let settings = How {
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            variables: variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        let (orders, taken) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        // One thread for the server's whole life: the server gets a signal when the thread that
        // started it ends.
        let keeper = thread::spawn(move || keep(&data, port, &settings, &ready, &taken));
        is_ready.recv().expect("PostgreSQL did not start: see the lines above");
        Server { port, folder, orders, keeper: Some(keeper) }
    }

    /// Kills the server like a power cut: connections are not closed in order, nothing more is
    /// written.
    pub(crate) fn kill(&self) {
        let (done, is_done) = mpsc::channel();
        self.orders.send(Order::Kill(done)).unwrap();
        is_done.recv().unwrap();
    }

    /// Creates a database owned by a role that is not a superuser; returns its address.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER postrider"));
        self.url(name)
    }

    /// The address of a database.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("postgres://postrider@127.0.0.1:{}/{name}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn runs(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| !keeper.is_finished())
    }

    /// Stops the server with a signal (`INT`: disconnects all clients; `QUIT`: like a crash) and
    /// starts it again.
    pub(crate) fn restart(&self, signal: &'static str) {
        let (done, is_done) = mpsc::channel();
        self.orders.send(Order::Restart(signal, done)).unwrap();
        is_done.recv().expect("PostgreSQL did not start again: see the lines above");
    }

    /// Waits until the server has noticed that a role's connections are closed.
    pub(crate) async fn wait_until_nobody_is_there(&self, role: &str) {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'");
        while self.sql("postgres", &sql) != "0" {
            tokio::task::yield_now().await;
        }
    }

    /// Runs statements as the superuser; returns the selected values.
    pub(crate) fn sql(&self, database: &str, statements: &str) -> String {
        self.try_sql(database, statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// Runs statements as the superuser; returns the server's message if it refuses one.
    pub(crate) fn try_sql(&self, database: &str, statements: &str) -> Result<String, String> {
        let port = self.port.to_string();
        let mut psql = Command::new(program("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        psql.args(["-U", "postgres", "-p", &port, "-d", database, "-c", statements]);
        let output = psql.output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.send(Order::Stop));
        if let Some(keeper) = self.keeper.take() {
            drop(keeper.join());
        }
    }
}

/// A folder that the unprivileged user of the server can use.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("postrider-pg-").tempdir().unwrap();
    run(Command::new("chmod").arg("755").arg(folder.path()));
    folder
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The parameters with which a server is started.
struct How {
    settings: Vec<String>,
    variables: Vec<(String, String)>,
}

/// Starts the server, executes orders, and stops it.
fn keep(
    data: &Path,
    port: u16,
    settings: &How,
    ready: &mpsc::Sender<()>,
    orders: &mpsc::Receiver<Order>,
) {
    let mut server = begin(data, port, settings);
    ready.send(()).unwrap();
    loop {
        match orders.recv() {
            Ok(Order::Restart(signal, done)) => {
                end(&mut server, signal);
                server = begin(data, port, settings);
                done.send(()).unwrap();
            }
            Ok(Order::Kill(done)) => {
                end(&mut server, "KILL");
                done.send(()).unwrap();
                return;
            }
            Ok(Order::Stop) | Err(_) => break,
        }
    }
    // Stop without a checkpoint: the files are removed anyway, and a checkpoint takes long when
    // many files must be synced.
    end(&mut server, "QUIT");
}

fn begin(data: &Path, port: u16, how: &How) -> Child {
    let mut command = as_ordinary_user(&program("postgres"), &["--pdeathsig", "QUIT"]);
    command.arg("-D").arg(data).args(["-p", &port.to_string(), "-k"]).arg(data);
    let fixed = ["listen_addresses=127.0.0.1", "shared_buffers=64MB", "authentication_timeout=10s"];
    for setting in fixed.iter().copied().chain(how.settings.iter().map(String::as_str)) {
        command.args(["-c", setting]);
    }
    command.envs(how.variables.iter().map(|(name, value)| (name, value)));
    let mut child = command.current_dir("/").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
        said.push(line.clone());
        line.contains("database system is ready to accept")
    });
    assert!(is_ready, "PostgreSQL did not start:\n{}", said.join("\n"));
    // Its further output is not needed, but must be read so that it does not block.
    thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    child
}

fn end(server: &mut Child, signal: &str) {
    // Send the signal twice: PostgreSQL 15 may miss the first one for a minute.
    for _ in 0..2 {
        // Use the shell's builtin `kill`: a minimal machine has no program of that name.
        let kill = format!("kill -s {signal} {}", server.id());
        drop(Command::new("sh").arg("-c").arg(kill).stderr(Stdio::null()).status());
    }
    server.wait().unwrap();
}

/// A data folder that is created once; every server gets a copy.
fn template() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let version = program("postgres").to_string_lossy().replace('/', "_");
    let template = place.join(format!("template{version}"));
    if template.exists() {
        return template;
    }
    let folder = tempfile::Builder::new().prefix("postrider-pg-").tempdir().unwrap();
    run(Command::new("chmod").arg("777").arg(folder.path()));
    let data = folder.path().join("data");
    let mut initdb = as_ordinary_user(&program("initdb"), &[]);
    initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"]);
    run(initdb.arg(&data).current_dir("/"));
    std::fs::create_dir_all(place).unwrap();
    let apart = place.join(format!("template-{}", std::process::id()));
    run(Command::new("cp").arg("-a").arg(&data).arg(&apart));
    if std::fs::rename(&apart, &template).is_err() {
        // Another process was faster.
        std::fs::remove_dir_all(&apart).unwrap();
    }
    template
}

/// A program of the newest PostgreSQL that is installed.
pub(crate) fn program(name: &str) -> PathBuf {
    let folder = Path::new("/usr/lib/postgresql");
    let mut versions: Vec<u32> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    let newest = versions.last().unwrap_or_else(|| {
        panic!(
            "PostgreSQL is not installed: these tests start servers of their own; \
             `cargo xtask install` or `apt-get install postgresql` helps"
        )
    });
    folder.join(newest.to_string()).join("bin").join(name)
}

/// Runs a program as an ordinary user: PostgreSQL refuses to run as root.
pub(crate) fn as_ordinary_user(program: &Path, options: &[&str]) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|this| {
        use std::os::unix::fs::MetadataExt;
        this.uid() == 0
    });
    let mut command = Command::new("setpriv");
    if is_root {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
    }
    command.args(options).arg("--").arg(program);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}
