//! `cargo xtask bench-cluster`: measures one, two and three nodes on one PostgreSQL.
//!
//! The PostgreSQL is a private server of Debian's package, with its own folder and port and the
//! default settings except `shared_buffers` (64 MB, as in the tests): `fsync` is on. It stops with
//! this program, and its files are removed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::process::{self, command};

/// The scenario that is comparable with Svix's published figure.
const SCENARIOS: &str = "fan-out 5";
const NODES: [&str; 3] = ["1", "2", "3"];

/// Builds, starts a PostgreSQL, and measures with each number of nodes. Further arguments are
/// passed to `postrider bench`; `--nodes` selects one number.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    process::run(&mut command(root, "cargo build --release --package postrider"))?;
    // On a disk, in a folder that every user can enter: the database runs as another user.
    let folder = format!("/var/tmp/postrider-bench-cluster-{}", std::process::id());
    let postgres = Postgres::start(Path::new(&folder))?;
    let is_given = |flag: &str| arguments.iter().any(|one| one.split('=').next() == Some(flag));
    let each: &[&str] = if is_given("--nodes") { &[""] } else { &NODES };
    for (n, nodes) in each.iter().enumerate() {
        let url = postgres.database(&format!("bench{n}"))?;
        let mut bench = Command::new(process::target(root).join("release/postrider"));
        bench.current_dir(root).args(["bench", "--store"]).arg(url);
        if !nodes.is_empty() {
            bench.args(["--nodes", nodes]);
        }
        if !is_given("--only") {
            bench.args(["--only", SCENARIOS]);
        }
        if !is_given("--dir") {
            bench.arg("--dir").arg(&postgres.folder);
        }
        process::run(bench.args(arguments))?;
    }
    Ok(())
}

/// A running server; it stops on drop.
struct Postgres {
    folder: PathBuf,
    port: u16,
    server: Child,
}

impl Postgres {
    fn start(folder: &Path) -> Result<Postgres> {
        fs::create_dir_all(folder)?;
        // PostgreSQL refuses to run as root, and its user must be able to write here.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
        let data = folder.join("data");
        let mut initdb = as_ordinary_user(&program("initdb")?, &[])?;
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "-D"]);
        process::output(initdb.arg(&data))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut begin = as_ordinary_user(&program("postgres")?, &["--pdeathsig", "QUIT"])?;
        begin.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(&data);
        begin.args(["-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=64MB"]);
        let mut server = begin.stderr(Stdio::piped()).spawn().context("cannot start PostgreSQL")?;
        let log = server.stderr.take().context("PostgreSQL without a log")?;
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let postgres = Postgres { folder: folder.to_path_buf(), port, server };
        let mut said = Vec::new();
        let is_ready = lines.by_ref().any(|line| {
            said.push(line.clone());
            line.contains("database system is ready to accept")
        });
        if !is_ready {
            bail!("PostgreSQL did not start:\n{}", said.join("\n"));
        }
        // Its further output is not needed, but must be read so that it does not block.
        drop(thread::spawn(move || lines.for_each(drop)));
        postgres.sql("CREATE ROLE postrider LOGIN")?;
        Ok(postgres)
    }

    /// The address of a new database.
    fn database(&self, name: &str) -> Result<String> {
        self.sql(&format!("CREATE DATABASE {name} OWNER postrider"))?;
        Ok(format!("postgres://postrider@127.0.0.1:{}/{name}", self.port))
    }

    fn sql(&self, statement: &str) -> Result<()> {
        let mut psql = Command::new(program("psql")?);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres", "-p"]);
        process::output(psql.arg(self.port.to_string()).args(["-c", statement])).map(drop)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Stop without a checkpoint, because the files are removed anyway. Use the shell's builtin
        // `kill`: a minimal machine has no program of that name.
        let kill = format!("kill -s QUIT {}", self.server.id());
        drop(Command::new("sh").args(["-c", &kill]).status());
        drop(self.server.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A program of the newest installed PostgreSQL.
fn program(name: &str) -> Result<PathBuf> {
    let folder = Path::new("/usr/lib/postgresql");
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let versions = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let newest = versions.max().context(
        "PostgreSQL is not installed: `cargo xtask install` or `apt-get install postgresql` helps",
    )?;
    Ok(folder.join(newest.to_string()).join("bin").join(name))
}

/// Runs a program as an ordinary user: PostgreSQL refuses to run as root.
fn as_ordinary_user(program: &Path, options: &[&str]) -> Result<Command> {
    let mut command = Command::new("setpriv");
    if fs::metadata("/proc/self")?.uid() == 0 {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
    }
    command.args(options).arg("--").arg(program).current_dir("/");
    Ok(command)
}
