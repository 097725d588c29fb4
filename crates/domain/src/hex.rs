//! Bytes as hexadecimal digits.

const LOWER: &[u8; 16] = b"0123456789abcdef";

/// The bytes as lower-case digits, two for each byte.
pub fn encode(bytes: &[u8]) -> String {
    // Exact capacity: a string that grows would leave copies of a secret in freed memory.
    let mut text = String::with_capacity(bytes.len() * 2);
    text.extend(bytes.iter().flat_map(|byte| digits(*byte, LOWER)).map(char::from));
    text
}

/// The two digits of a byte, taken from `alphabet`.
pub(crate) const fn digits(byte: u8, alphabet: &[u8; 16]) -> [u8; 2] {
    [alphabet[(byte >> 4) as usize], alphabet[(byte & 15) as usize]]
}

/// Decodes lower-case digits; `None` unless there are exactly two for each byte.
pub(crate) fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_through_digits() {
        let bytes: [u8; 256] = std::array::from_fn(|n| u8::try_from(n).unwrap());
        let text = encode(&bytes);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"));
        assert_eq!(text.capacity(), 512);
        assert_eq!(decode(text.as_bytes()), Some(bytes));
    }

    #[test]
    fn malformed_digits_are_refused() {
        for text in ["", "0", "0g", "0A", "000", "0000"] {
            assert_eq!(decode::<1>(text.as_bytes()), None, "{text:?}");
        }
    }
}
