//! Finds the programs that the commands need beside cargo, and installs missing ones by package
//! name.
//!
//! Only needed packages are installed, and no host is named: the machine's configuration decides
//! where packages come from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::process::{command, exists, output, run};
use crate::toml::Toml;

/// A Debian package, how to check that it is installed, and its purpose.
struct Need {
    package: &'static str,
    probe: &'static str,
    purpose: &'static str,
}

/// Installs everything that this repository needs and that is missing.
pub(crate) fn everything(root: &Path) -> Result<()> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let dashboard = fs::read_to_string(root.join("dashboard/package.json")).ok();
    let mut needs = needs(&manifest, dashboard.as_deref());
    if root.join("packaging/systemd").exists() {
        needs.push(SYSTEMD);
    }
    if needs.is_empty() {
        println!("nothing is needed beside cargo");
    }
    for need in needs {
        ensure_debian_package(need.package, need.probe, need.purpose)?;
    }
    Ok(())
}

/// Installs what is needed to create Python environments.
pub(crate) fn python() -> Result<()> {
    let purpose = "the reference libraries are installed into an environment of their own";
    ensure_debian_package("python3", "python3", purpose)?;
    if exists("python3 -m ensurepip --version") {
        return Ok(());
    }
    ensure_debian_package("python3-venv", "/usr/lib/*/ensurepip/__init__.py", purpose)
}

/// Installs what is needed to build the allocator, beside the compiler that Rust needs.
pub(crate) fn make() -> Result<()> {
    ensure_debian_package(MAKE.package, MAKE.probe, MAKE.purpose)
}

const MAKE: Need =
    Need { package: "make", probe: "make", purpose: "the allocator, jemalloc, is built with it" };

/// Installs the program that judges the unit. No service manager is started by that.
pub(crate) fn systemd() -> Result<()> {
    ensure_debian_package(SYSTEMD.package, SYSTEMD.probe, SYSTEMD.purpose)
}

const SYSTEMD: Need =
    Need { package: "systemd", probe: "systemd-analyze", purpose: "the unit is judged by it" };

/// Installs the program that counts instructions.
pub(crate) fn valgrind() -> Result<()> {
    ensure_debian_package("valgrind", "valgrind", "instructions per delivery are counted with it")
}

/// Installs what is needed to build the dashboard.
pub(crate) fn node() -> Result<()> {
    for need in &NODE {
        ensure_debian_package(need.package, need.probe, need.purpose)?;
    }
    let version = output(&mut command(Path::new("/"), "node --version"))?;
    if !is_recent_node(&version) {
        bail!("Node.js {} is too old: the dashboard needs 18 or newer", version.trim());
    }
    Ok(())
}

/// Whether it is 18 or newer, from what `node --version` prints.
fn is_recent_node(version: &str) -> bool {
    let major = version.trim().trim_start_matches('v').split('.').next();
    major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 18)
}

/// Installs what is needed to build and test the clients in other languages.
pub(crate) fn languages() -> Result<()> {
    python()?;
    node()?;
    go("the client for Go is tested with it")
}

/// Installs Go.
fn go(purpose: &str) -> Result<()> {
    // Go has no option that prints the version.
    ensure_debian_package("golang-go", "/usr/bin/go", purpose)
}

/// What the shell blocks of the documents use.
pub(crate) fn of_documents() -> Result<()> {
    let purpose = "shell blocks of the documents use it";
    ["curl", "jq", "python3"].iter().try_for_each(|one| ensure_debian_package(one, one, purpose))
}

/// What must be able to read every refusal.
pub(crate) fn http_clients() -> Result<()> {
    let purpose = "the server's refusals are read with it";
    ensure_debian_package("curl", "curl", purpose)?;
    go(purpose)
}

/// What the pages are looked at with.
pub(crate) fn chromium() -> Result<()> {
    ensure_debian_package("chromium", "chromium", "the dashboard is tested with it")
}

/// What the page is tested with: a browser, and Go for the snippet that it shows.
pub(crate) fn of_page_tests() -> Result<()> {
    chromium()?;
    go("the dashboard's snippet for Go is tested with it")
}

const NODE: [Need; 2] = [
    Need { package: "nodejs", probe: "node", purpose: "the dashboard is built with it" },
    Need { package: "npm", probe: "npm", purpose: "the dashboard is built with it" },
];

/// Programs with which the tests of transport and store create networks and faults; without them
/// the tests check less.
const TESTS: [Need; 2] = [
    Need { package: "iproute2", probe: "ip", purpose: "tests make network namespaces with it" },
    Need { package: "strace", probe: "strace", purpose: "tests let system calls fail with it" },
];

/// The needed packages, from the workspace's manifest and the dashboard's `package.json`, if there
/// is one.
fn needs(manifest: &str, dashboard: Option<&str>) -> Vec<Need> {
    let mut needs = Vec::new();
    let manifest = Toml::parse(manifest);
    let has = |name| manifest.keys("workspace.dependencies").any(|key| key == name);
    if has("tikv-jemallocator") {
        needs.push(MAKE);
    }
    if has("postrider-transport") {
        needs.extend(TESTS);
    }
    if has("lettre") {
        needs.push(Need {
            package: "python3-aiosmtpd",
            probe: "/usr/lib/python3/dist-packages/aiosmtpd/__init__.py",
            purpose: "tests send their e-mails to this mail server",
        });
    }
    if has("tokio-postgres") {
        needs.push(Need {
            package: "postgresql",
            probe: "/usr/lib/postgresql/*/bin/initdb",
            purpose: "the tests of the PostgreSQL store start servers of their own",
        });
        needs.push(Need {
            package: "pgbouncer",
            probe: "/usr/sbin/pgbouncer",
            purpose: "the tests of the PostgreSQL store go through it",
        });
    }
    if let Some(package_json) = dashboard {
        needs.extend(NODE);
        if ["playwright", "puppeteer"].iter().any(|driver| package_json.contains(driver)) {
            needs.push(Need {
                package: "chromium",
                probe: "chromium",
                purpose: "the tests of the dashboard look at it in a browser",
            });
        }
    }
    needs
}

/// Installs a Debian package unless it is installed. `probe` exists once it is: a program on the
/// search path, or an absolute path in which one `*` may stand for one folder.
pub(crate) fn ensure_debian_package(package: &str, probe: &str, purpose: &str) -> Result<()> {
    if is_there(probe) {
        println!("{package}: there");
        return Ok(());
    }
    let here = Path::new("/");
    let is_root = output(&mut command(here, "id -u")).is_ok_and(|id| id.trim() == "0");
    if !is_root || !exists("apt-get --version") {
        bail!("{package} is not installed ({purpose}); install it: apt-get install {package}");
    }
    println!("{package}: installing ({purpose})");
    // Update the package lists only once.
    static LISTS: std::sync::Once = std::sync::Once::new();
    let mut updated = Ok(());
    LISTS.call_once(|| updated = run(&mut command(here, "apt-get update -qq")));
    updated?;
    let mut install = command(here, "apt-get install -y -qq --no-install-recommends");
    run(install.arg(package).env("DEBIAN_FRONTEND", "noninteractive"))?;
    if !is_there(probe) {
        bail!("{package} was installed, but {probe} is not there");
    }
    Ok(())
}

/// A file of a Debian package that is unpacked under `target/` and not installed, for programs whose
/// package would start a service.
pub(crate) fn unpacked_from_debian(root: &Path, package: &str, file: &str) -> Result<PathBuf> {
    let folder = root.join("target/unpacked").join(package);
    let found = folder.join(file);
    if found.exists() {
        return Ok(found);
    }
    if !exists("apt-get --version") {
        bail!("{file} of Debian's package {package} is not here, and there is no apt-get");
    }
    fs::create_dir_all(&folder)?;
    let mut download = command(&folder, "apt-get download -qq");
    if run(download.arg(package)).is_err() {
        run(&mut command(&folder, "apt-get update -qq"))?;
        run(command(&folder, "apt-get download -qq").arg(package))?;
    }
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(command(&folder, "dpkg-deb --extract").arg(&path).arg("."))?;
            fs::remove_file(&path)?;
        }
    }
    if !found.exists() {
        bail!("{package} was unpacked, but {file} is not in it");
    }
    Ok(found)
}

fn is_there(probe: &str) -> bool {
    if !probe.starts_with('/') {
        // `ip` has another option for the version.
        return ["--version", "-V"].iter().any(|flag| exists(&format!("{probe} {flag}")));
    }
    match probe.split_once("/*/") {
        None => Path::new(probe).exists(),
        Some((folder, rest)) => fs::read_dir(folder)
            .is_ok_and(|entries| entries.flatten().any(|e| e.path().join(rest).exists())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_a_program_or_a_path_with_at_most_one_star() {
        for there in ["cargo", "/bin/sh", "/usr/*/sh"] {
            assert!(is_there(there), "{there}");
        }
        let nowhere = ["no-such-program", "/usr/*/no-such-program", "/no-such-folder/*/sh"];
        for missing in nowhere {
            assert!(!is_there(missing), "{missing}");
        }
    }

    #[test]
    fn node_is_recent_from_18_on() {
        for recent in ["v18.20.4\n", "v20.20.2", "v100.0.0"] {
            assert!(is_recent_node(recent), "{recent}");
        }
        for old in ["v16.13.0", "v8.0.0", "", "nonsense"] {
            assert!(!is_recent_node(old), "{old}");
        }
    }

    #[test]
    fn what_is_there_is_not_installed_again() {
        ensure_debian_package("dash", "/bin/sh", "a shell").unwrap();
    }

    #[test]
    fn only_what_the_repository_uses_is_needed() {
        let packages = |manifest, dashboard| {
            let needs = needs(manifest, dashboard);
            needs.iter().map(|need| need.package).collect::<Vec<_>>()
        };
        let postgres = "[workspace.dependencies]\ntokio-postgres = \"0.7\"\n";
        assert_eq!(packages("[workspace.dependencies]\nserde = \"1\"\n", None), [""; 0]);
        assert_eq!(packages(postgres, None), ["postgresql", "pgbouncer"]);
        let transport = "[workspace.dependencies]\npostrider-transport = { path = \"x\" }\n";
        assert_eq!(packages(transport, None), ["iproute2", "strace"]);
        let mails = "[workspace.dependencies]\nlettre = \"0.11\"\n";
        assert_eq!(packages(mails, None), ["python3-aiosmtpd"]);
        let allocator = "[workspace.dependencies]\ntikv-jemallocator = \"1\"\n";
        assert_eq!(packages(allocator, None), ["make"]);
        assert_eq!(packages("", Some("{}")), ["nodejs", "npm"]);
        let browser = Some("{\"devDependencies\": {\"playwright-core\": \"1\"}}");
        assert_eq!(
            packages(postgres, browser),
            ["postgresql", "pgbouncer", "nodejs", "npm", "chromium"]
        );
    }
}
