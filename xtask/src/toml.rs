//! A parser for the part of TOML that our manifests use: sections, keys, and values as text.
//!
//! A value that spans lines is joined into one. Multi-line texts and quoted keys with dots are not
//! supported; our manifests have none.

/// A file's keys in their order.
pub(crate) struct Toml {
    entries: Vec<Entry>,
}

/// One key of one section.
pub(crate) struct Entry {
    /// The section's name; empty before the first one.
    pub(crate) section: String,
    /// The key; for `serde.workspace = true` that is `serde.workspace`.
    pub(crate) key: String,
    /// The value's text without comments.
    pub(crate) value: String,
    /// The line of the key, from 1.
    pub(crate) line: usize,
}

impl Toml {
    pub(crate) fn parse(text: &str) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut section = String::new();
        let mut unclosed = 0;
        for (index, line) in text.lines().enumerate() {
            let line = without_comment(line).trim();
            if unclosed > 0 {
                if let Some(entry) = entries.last_mut() {
                    entry.value.push(' ');
                    entry.value.push_str(line);
                }
                unclosed += brackets(line);
            } else if line.starts_with('[') {
                section = line.trim_matches(['[', ']']).to_owned();
                // `[dependencies.serde]` names a dependency like a key.
                if let Some((outer, key)) = section.rsplit_once('.')
                    && outer.ends_with("dependencies")
                {
                    let (section, key) = (outer.to_owned(), key.to_owned());
                    entries.push(Entry { section, key, value: String::new(), line: index + 1 });
                }
            } else if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim().trim_matches('"').to_owned(), value.trim());
                unclosed = brackets(value);
                let (section, value) = (section.clone(), value.to_owned());
                entries.push(Entry { section, key, value, line: index + 1 });
            }
        }
        Toml { entries }
    }

    /// The entries of every section that `wanted` accepts.
    pub(crate) fn entries(&self, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| wanted(&entry.section))
    }

    /// The keys of a section.
    pub(crate) fn keys<'a>(&'a self, section: &str) -> impl Iterator<Item = &'a str> {
        self.entries(move |name| name == section).map(|entry| entry.key.as_str())
    }

    /// The value of a key, as text.
    pub(crate) fn value(&self, section: &str, key: &str) -> Option<&str> {
        self.entries(|name| name == section)
            .find(|entry| entry.key == key)
            .map(|entry| entry.value.as_str())
    }

    /// Every dependency of a crate's manifest: its name and line; `kinds` are the names of the
    /// sections, such as `dev-dependencies`, including those for one target.
    pub(crate) fn dependencies(&self, kinds: &[&str]) -> Vec<(&str, usize)> {
        let wanted = |name: &str| {
            kinds.iter().any(|kind| name == *kind || name.ends_with(&format!(".{kind}")))
        };
        self.entries(|name| wanted(name) && !name.starts_with("workspace"))
            .map(|entry| (entry.name(), entry.line))
            .collect()
    }
}

/// All kinds of dependencies.
pub(crate) const ALL_KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

impl Entry {
    /// The key's first word: `serde` of `serde.workspace`.
    pub(crate) fn name(&self) -> &str {
        self.key.split('.').next().unwrap_or(&self.key)
    }
}

/// The quoted texts in a value, such as the elements of an array.
pub(crate) fn texts(value: &str) -> Vec<&str> {
    value.split('"').skip(1).step_by(2).collect()
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

/// How many brackets the line leaves open.
fn brackets(line: &str) -> i32 {
    let mut open = 0;
    for outside in line.split('"').step_by(2) {
        for character in outside.chars() {
            match character {
                '[' | '{' => open += 1,
                ']' | '}' => open -= 1,
                _ => {}
            }
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r##"
[package]
name = "example" # its "name"

[dependencies]
serde.workspace = true
url = { workspace = true, features = [
  "serde", # with a comment ]
] }
"quoted" = "1#2"

[dependencies.long]
workspace = true

[target.'cfg(unix)'.dependencies]
rustix.workspace = true

[dev-dependencies]
insta.workspace = true
"##;

    #[test]
    fn a_manifest_reads_as_sections_keys_and_values() {
        let toml = Toml::parse(MANIFEST);
        assert_eq!(toml.value("package", "name"), Some("\"example\""));
        assert_eq!(toml.value("package", "version"), None);
        let url = toml.value("dependencies", "url").unwrap();
        assert_eq!(texts(url), ["serde"]);
        assert_eq!(toml.value("dependencies", "quoted"), Some("\"1#2\""));
        assert_eq!(toml.keys("dev-dependencies").collect::<Vec<_>>(), ["insta.workspace"]);
    }

    #[test]
    fn dependencies_are_found_however_they_are_written() {
        let toml = Toml::parse(MANIFEST);
        let normal = toml.dependencies(&["dependencies"]);
        assert_eq!(
            normal,
            [("serde", 6), ("url", 7), ("quoted", 10), ("long", 12), ("rustix", 16)]
        );
        assert_eq!(toml.dependencies(&["dev-dependencies"]), [("insta", 19)]);
    }
}
