//! The script that a page's blocks make, with free ports in place of those that the page names.

use std::path::Path;

use crate::markdown::{Block, Run};

/// The ports that documents may name: of the API, of health and metrics (10,000 above it), of receivers.
pub(super) const PORTS: [u16; 8] = [8080, 18080, 9000, 9001, 9002, 9003, 9004, 9005];

/// Which free port stands for which.
pub(super) struct Ports(Vec<(u16, u16)>);

impl Ports {
    pub(super) fn new(free: Vec<u16>) -> Ports {
        Ports(PORTS.into_iter().zip(free).collect())
    }

    /// The text with every port replaced, where it stands as a number of its own.
    fn replace(&self, text: &str) -> String {
        let mut replaced = String::new();
        let mut digits = String::new();
        for c in text.chars().chain(['\n']) {
            if c.is_ascii_digit() {
                digits.push(c);
                continue;
            }
            let known = self.0.iter().find(|(port, _)| port.to_string() == digits);
            replaced += &known.map_or_else(|| digits.clone(), |(_, free)| free.to_string());
            digits.clear();
            replaced.push(c);
        }
        replaced.pop();
        replaced
    }

    /// Where the server listens, and where commands find it.
    fn variables(&self) -> String {
        let free = self.0.iter().find(|(port, _)| *port == 8080).map_or(8080, |(_, free)| *free);
        format!("POSTRIDER_LISTEN=127.0.0.1:{free} POSTRIDER_SERVER=http://127.0.0.1:{free}")
    }
}

/// Ends at the first block that fails, and with it everything that the page has started.
const HEAD: &str = r#"set -Eeuo pipefail
for name in $(compgen -e POSTRIDER_ || true); do unset "$name"; done
set -m
failed() { echo "docs-check: $page:$line: the block failed" >&2; tail -n 20 ../background-* >&2 || true; }
ended() { for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; wait 2>/dev/null || true; }
trap failed ERR
trap ended EXIT
until_it_listens() {
  for _ in $(seq 300); do if grep -q 'listening on \|"listening"' "$1"; then return; fi; sleep 0.1; done
  echo "it does not say within 30 s that it is listening" >&2
  return 1
}
"#;

pub(super) fn of(path: &str, blocks: &[Block], ports: &Ports, programs: &Path) -> String {
    let (programs, variables) = (programs.display(), ports.variables());
    let mut script =
        format!("{HEAD}export PATH='{programs}':\"$PATH\" {variables}\npage='{path}'\n");
    for block in blocks {
        let (line, text) = (block.line, ports.replace(&block.text));
        match block.run() {
            Some(Run::ToItsEnd | Run::Unseen) => script += &format!("line={line}\n{text}"),
            Some(Run::Background) => {
                let log = format!("../background-{line}");
                script += &format!(
                    "line={line}\n(\n{text}) >{log} 2>&1 </dev/null &\nuntil_it_listens {log}\n"
                );
            }
            Some(Run::Never) | None => {}
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markdown::blocks;

    fn ports() -> Ports {
        Ports::new((1..=8).map(|n| 40000 + n).collect())
    }

    #[test]
    fn ports_are_replaced_where_they_stand_alone() {
        let text = "http://127.0.0.1:8080/ --port 9000 18080 180801 8080";
        let expected = "http://127.0.0.1:40001/ --port 40003 40002 180801 40001";
        assert_eq!(ports().replace(text), expected);
    }

    #[test]
    fn blocks_become_one_script_in_their_order() {
        let page =
            "```sh,background\nserve 8080\n```\n```sh,no-run\nnever\n```\n```sh\nask 8080\n```\n";
        let script = of("a.md", &blocks(page), &ports(), Path::new("/programs"));
        let background = script.find("serve 40001\n) >../background-1").unwrap();
        assert!(background < script.find("line=7\nask 40001\n").unwrap());
        assert!(!script.contains("never"));
        assert!(script.contains("PATH='/programs':\"$PATH\" POSTRIDER_LISTEN=127.0.0.1:40001 "));
    }
}
