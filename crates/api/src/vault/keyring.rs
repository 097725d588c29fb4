//! The keys of a vault, and their file.
//!
//! The file is JSON: `{"version": 1, "hash_key": "…", "keys": [{"id": "…", "key": "…"}, …]}`, with 32
//! random bytes in base64 for each key, newest last. It is created with mode 0600 and replaced
//! atomically; nothing of it is ever shown.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use crate::random::{self, NoRandomness};

const VERSION: u32 = 1;
/// The most keys in one ring.
const KEYS_MAX: usize = 100;
/// The longest name of a key.
const ID_BYTES_MAX: usize = 64;

/// Keys to seal with (the newest) and to open with (all of them), and one to hash with.
#[derive(Clone)]
pub struct KeyRing {
    hash_key: Zeroizing<[u8; 32]>,
    /// Newest last; never empty.
    keys: Vec<RingKey>,
}

#[derive(Clone)]
struct RingKey {
    id: String,
    key: Zeroizing<[u8; 32]>,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RingText {
    version: u32,
    hash_key: String,
    keys: Vec<KeyText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    id: String,
    key: String,
}

/// Why a key ring cannot be loaded or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyRingError {
    /// The file cannot be read or written.
    #[error("cannot use the key ring {path}: {cause}")]
    File {
        /// The path.
        path: String,
        /// The operating system's error.
        cause: io::Error,
    },
    /// Others than its owner may read or change the file.
    #[error(
        "others may read or change the key ring {path} (mode {mode:04o}); run: chmod 600 {path}"
    )]
    Exposed {
        /// The path.
        path: String,
        /// Its mode.
        mode: u32,
    },
    /// The text is not a key ring. It is not repeated.
    #[error("not a key ring: {0}")]
    Malformed(&'static str),
    /// The file is not a key ring, or a damaged one. Its contents are not repeated.
    #[error(
        "the key ring {path} is damaged: {what}\nput your copy of it there, or name the copy by \
         POSTRIDER_KEYRING; what was sealed with it cannot be opened by another one"
    )]
    Damaged {
        /// The path.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// No random key can be generated.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl KeyRing {
    /// A ring with one new key.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut ring = KeyRing { hash_key: random::secret_bytes()?, keys: Vec::new() };
        ring.add_key()?;
        Ok(ring)
    }

    /// Adds a new key, which seals from now on; returns its name.
    pub fn add_key(&mut self) -> Result<&str, NoRandomness> {
        let name = u64::from_be_bytes(random::bytes()?);
        let key = RingKey { id: format!("k{name:016x}"), key: random::secret_bytes()? };
        self.keys.push(key);
        Ok(self.newest().0)
    }

    /// Parses a ring.
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let mut ring: RingText = serde_json::from_str(text)
            .map_err(|_| KeyRingError::Malformed("it is not the JSON of a key ring"))?;
        let result = KeyRing::from_text(&ring);
        ring.hash_key.zeroize();
        ring.keys.iter_mut().for_each(|key| key.key.zeroize());
        result
    }

    /// The ring as it is written to its file.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut ring = RingText {
            version: VERSION,
            hash_key: STANDARD.encode(self.hash_key.as_slice()),
            keys: self
                .keys
                .iter()
                .map(|key| KeyText { id: key.id.clone(), key: STANDARD.encode(key.key.as_slice()) })
                .collect(),
        };
        let text = Zeroizing::new(serde_json::to_string_pretty(&ring).unwrap_or_default());
        ring.hash_key.zeroize();
        ring.keys.iter_mut().for_each(|key| key.key.zeroize());
        text
    }

    /// Reads a ring from a file that only its owner may read. A file of root may also be readable
    /// by its group, as mounted secrets are.
    pub fn read(path: &Path) -> Result<Self, KeyRingError> {
        let read = || -> io::Result<_> {
            let mut file = fs::File::open(path)?;
            let (found, mut text) = (file.metadata()?, Zeroizing::new(String::new()));
            file.read_to_string(&mut text)?;
            Ok((found, text))
        };
        let (found, text) = read().map_err(|cause| {
            if cause.kind() != io::ErrorKind::InvalidData {
                return file_error(path, cause);
            }
            KeyRingError::Damaged { path: path.display().to_string(), what: "it is not text" }
        })?;
        let forbidden = if found.uid() == 0 { 0o037 } else { 0o077 };
        if found.mode() & forbidden != 0 {
            let mode = found.mode() & 0o7777;
            return Err(KeyRingError::Exposed { path: path.display().to_string(), mode });
        }
        KeyRing::parse(&text).map_err(|error| match error {
            KeyRingError::Malformed(what) => {
                KeyRingError::Damaged { path: path.display().to_string(), what }
            }
            error @ (KeyRingError::File { .. }
            | KeyRingError::Exposed { .. }
            | KeyRingError::Damaged { .. }
            | KeyRingError::NoRandomness(_)) => error,
        })
    }

    /// Writes the ring to a file that must not exist, readable by its owner alone.
    pub fn create(&self, path: &Path) -> Result<(), KeyRingError> {
        self.write_new(path).map_err(|cause| file_error(path, cause))
    }

    /// Replaces the file atomically.
    pub fn replace(&self, path: &Path) -> Result<(), KeyRingError> {
        let beside = path.with_extension("new");
        // A leftover file, or a link that somebody placed there, is removed and not followed.
        match fs::remove_file(&beside) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(file_error(&beside, cause));
            }
            Ok(()) | Err(_) => {}
        }
        let replaced = self.write_new(&beside).and_then(|()| fs::rename(&beside, path));
        replaced.and_then(|()| sync_folder(path)).map_err(|cause| file_error(path, cause))
    }

    /// The names of the keys, the newest last.
    pub fn names(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.id.as_str()).collect()
    }

    /// Whether this ring has all keys of another one.
    pub fn replaces(&self, other: &KeyRing) -> bool {
        let has = |key: &RingKey| self.get(&key.id) == Some(&*key.key);
        self.hash_key == other.hash_key && other.keys.iter().all(has)
    }

    /// Name and bytes of the key to seal with.
    pub(super) fn newest(&self) -> (&str, &[u8; 32]) {
        let key = self.keys.last().expect("a ring is made with a key and never loses one");
        (&key.id, &key.key)
    }

    /// The key of this name.
    pub(super) fn get(&self, id: &str) -> Option<&[u8; 32]> {
        self.keys.iter().find(|key| key.id == id).map(|key| &*key.key)
    }

    pub(super) fn hash_key(&self) -> &[u8; 32] {
        &self.hash_key
    }

    fn from_text(text: &RingText) -> Result<Self, KeyRingError> {
        if text.version != VERSION {
            return Err(KeyRingError::Malformed("its version is not 1"));
        }
        if text.keys.is_empty() || text.keys.len() > KEYS_MAX {
            return Err(KeyRingError::Malformed("it must have 1 to 100 keys"));
        }
        let mut keys: Vec<RingKey> = Vec::new();
        for KeyText { id, key } in &text.keys {
            let is_name = !id.is_empty() && id.bytes().all(|b| b.is_ascii_graphic());
            if !is_name || id.len() > ID_BYTES_MAX || keys.iter().any(|known| known.id == *id) {
                return Err(KeyRingError::Malformed("a key's id is empty, too long or repeated"));
            }
            keys.push(RingKey { id: id.clone(), key: decode(key)? });
        }
        Ok(KeyRing { hash_key: decode(&text.hash_key)?, keys })
    }

    fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.to_text().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        sync_folder(path)
    }
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyRing({} keys)", self.keys.len())
    }
}

fn decode(text: &str) -> Result<Zeroizing<[u8; 32]>, KeyRingError> {
    let bytes = Zeroizing::new(STANDARD.decode(text).unwrap_or_default());
    let bytes: &[u8; 32] = bytes
        .as_slice()
        .try_into()
        .map_err(|_| KeyRingError::Malformed("a key must be 32 bytes in base64"))?;
    Ok(Zeroizing::new(*bytes))
}

/// Makes the name of a new file durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn file_error(path: &Path, cause: io::Error) -> KeyRingError {
    KeyRingError::File { path: path.display().to_string(), cause }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = u64::from_be_bytes(random::bytes().unwrap());
            let path = std::env::temp_dir().join(format!("postrider-ring-{name:x}"));
            fs::create_dir(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn key_ring_round_trips_through_a_private_file() {
        let folder = Folder::new();
        let path = folder.0.join("keyring");
        let mut ring = KeyRing::generate().unwrap();
        ring.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(ring.create(&path), Err(KeyRingError::File { .. })), "never overwritten");
        ring.add_key().unwrap();
        ring.replace(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = KeyRing::read(&path).unwrap();
        assert_eq!(*read.to_text(), *ring.to_text());
        assert_eq!(read.keys.len(), 2);
        assert_eq!(format!("{read:?}"), "KeyRing(2 keys)");
    }

    #[test]
    fn ring_that_others_may_read_is_refused_with_the_way_to_close_it() {
        let folder = Folder::new();
        let path = folder.0.join("keyring");
        KeyRing::generate().unwrap().create(&path).unwrap();
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        for (mode, is_refused) in [
            (0o600, false),
            (0o400, false),
            (0o440, !is_root),
            (0o640, !is_root),
            (0o660, true),
            (0o644, true),
            (0o604, true),
            (0o602, true),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyRing::read(&path).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), is_refused, "{mode:o}: {error:?}");
            assert!(error.is_none_or(|error| error.contains("chmod 600")), "{mode:o}");
        }
    }

    #[test]
    fn link_in_the_place_of_the_new_ring_is_not_followed() {
        let folder = Folder::new();
        let (path, elsewhere) = (folder.0.join("keyring"), folder.0.join("elsewhere"));
        let ring = KeyRing::generate().unwrap();
        ring.create(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path.with_extension("new")).unwrap();
        ring.replace(&path).unwrap();
        assert!(!elsewhere.exists() && KeyRing::read(&path).is_ok());
    }

    #[test]
    fn a_ring_replaces_another_where_it_has_all_of_its_keys() {
        let old = KeyRing::generate().unwrap();
        let mut new = old.clone();
        let name = new.add_key().unwrap().to_owned();
        assert_eq!(new.names(), [old.names()[0], name.as_str()]);
        assert!(new.replaces(&old) && old.replaces(&old));
        assert!(!old.replaces(&new), "it lacks a key");
        assert!(!KeyRing::generate().unwrap().replaces(&old));
    }

    #[test]
    fn malformed_key_ring_is_refused_and_its_text_is_not_repeated() {
        let good = KeyRing::generate().unwrap().to_text().to_string();
        for bad in [
            "",
            "{}",
            "canary",
            &good.replace("\"version\": 1", "\"version\": 2"),
            &good.replace("\"key\": \"", "\"key\": \"canary"),
            &good.replace("\"id\": \"", "\"id\": \" "),
            &good.replace("\"version\"", "\"more\": 1, \"version\""),
            r#"{"version": 1, "hash_key": "", "keys": []}"#,
        ] {
            let error = KeyRing::parse(bad).unwrap_err().to_string();
            assert!(error.starts_with("not a key ring"), "{error}");
            assert!(!error.contains("canary"));
        }
    }
}
