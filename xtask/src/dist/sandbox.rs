//! The system calls that the unit allows: what the trial refuses all others by, because no service manager
//! runs there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::install;
use crate::process::{command, output};

/// The allowed calls in the notation of `strace`: a name that this machine does not know is skipped.
pub(super) fn allowed_calls(unit: &str) -> Result<String> {
    install::systemd()?;
    let group = |name: &str| {
        let mut ask = command(Path::new("/"), "systemd-analyze syscall-filter --no-pager");
        output(ask.arg(name))
    };
    let calls = of_unit(unit, &group)?;
    ensure!(!calls.is_empty(), "the unit has no SystemCallFilter");
    Ok(calls.iter().map(|call| format!("?{call}")).collect::<Vec<_>>().join(","))
}

/// The calls of the unit's `SystemCallFilter` lines, in order: a line that begins with `~` removes its own.
fn of_unit(unit: &str, group: &impl Fn(&str) -> Result<String>) -> Result<BTreeSet<String>> {
    let mut calls = BTreeSet::new();
    for line in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (is_removal, names) = match line.strip_prefix('~') {
            Some(names) => (true, names),
            None => (false, line),
        };
        for name in names.split_whitespace() {
            let named = expanded(name, group)?;
            if is_removal {
                calls.retain(|call| !named.contains(call));
            } else {
                calls.extend(named);
            }
        }
    }
    Ok(calls)
}

/// A call itself, or the calls of a group and of the groups in it.
fn expanded(name: &str, group: &impl Fn(&str) -> Result<String>) -> Result<BTreeSet<String>> {
    if !name.starts_with('@') {
        return Ok(BTreeSet::from([name.to_owned()]));
    }
    let told = group(name).with_context(|| format!("cannot list the system calls of {name}"))?;
    let mut calls = BTreeSet::new();
    // The first line repeats the name.
    let members = told.lines().skip(1).map(str::trim);
    for member in members.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        calls.extend(expanded(member, group)?);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_expanded_and_removed_in_the_order_of_the_lines() {
        let group = |name: &str| {
            Ok(match name {
                "@a" => "@a\n    # What it is\n    @b\n    read\n",
                "@b" => "@b\n    chown\n    write\n",
                _ => anyhow::bail!("unknown"),
            }
            .to_owned())
        };
        let calls = |unit: &str| {
            of_unit(unit, &group).map(|calls| calls.into_iter().collect::<Vec<_>>().join(" "))
        };
        let unit =
            "SystemCallFilter=@a openat\nSystemCallErrorNumber=EPERM\nSystemCallFilter=~@b\n";
        assert_eq!(calls(unit).unwrap(), "openat read");
        assert_eq!(calls("SystemCallFilter=~@b\nSystemCallFilter=@a").unwrap(), "chown read write");
        assert!(calls("SystemCallFilter=@c").is_err());
    }
}
