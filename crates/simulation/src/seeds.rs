//! Seeds that found a bug once: every run simulates them again.

use anyhow::{Context as _, Result};

/// Short lives, for the unoptimised build of the tests.
pub const SHORT: &str = include_str!("../seeds/found.txt");
/// Long lives, for the optimised build.
pub const LONG: &str = include_str!("../seeds/long.txt");

/// Parses a list of seeds, each with optional hours: `seed [hours]  # what`.
pub fn read(list: &str) -> Result<Vec<(u64, Option<u64>)>> {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(seed).collect()
}

fn seed(line: &str) -> Result<(u64, Option<u64>)> {
    let number = |word: &str| word.parse().with_context(|| format!("`{line}` is no seed"));
    let (seed, hours) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let hours = Some(hours.trim()).filter(|hours| !hours.is_empty());
    Ok((number(seed)?, hours.map(number).transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_seeds_hours_and_words() {
        assert_eq!(read("# all\n\n7 # x\n 8  12 # y\n").unwrap(), [(7, None), (8, Some(12))]);
        assert!(read("seven").is_err() && read("7 long").is_err());
        assert!(!read(SHORT).unwrap().is_empty() && !read(LONG).unwrap().is_empty());
    }
}
