//! A minimal HTTP/1.1 parser for measurements, to cost as little as possible: messages with a
//! `content-length`, one after the other on a connection.

/// A complete message: where its body begins and where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) body: usize,
    pub(crate) end: usize,
}

/// The first message in a buffer, if it is complete.
pub(crate) fn message(buffer: &[u8]) -> Option<Message> {
    let body = head_end(buffer)?;
    let length = content_length(buffer.get(..body)?)?;
    let end = body.checked_add(length)?;
    (buffer.len() >= end).then_some(Message { body, end })
}

/// The end of the head, after its empty line.
fn head_end(buffer: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let line_end = from + buffer.get(from..)?.iter().position(|byte| *byte == b'\n')?;
        if buffer.get(from..line_end)?.trim_ascii().is_empty() && from > 0 {
            return Some(line_end + 1);
        }
        from = line_end + 1;
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let value = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(b"content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then_some(value)
    });
    let digits = value.map(<[u8]>::trim_ascii).next().unwrap_or(b"0");
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The path of a request.
pub(crate) fn path(request: &[u8]) -> Option<&[u8]> {
    request.split(|byte| *byte == b' ').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_when_its_last_byte_is_there() {
        let request = b"POST /s/1 HTTP/1.1\r\nhost: x\r\nContent-Length: 3\r\n\r\nabc";
        let body = request.len() - 3;
        assert_eq!(message(request), Some(Message { body, end: request.len() }));
        for cut in 0..request.len() {
            assert_eq!(message(&request[..cut]), None, "{cut}");
        }
        assert_eq!(path(request), Some(b"/s/1".as_slice()));
        let answer = b"HTTP/1.1 202 Accepted\r\n\r\n";
        assert_eq!(message(answer), Some(Message { body: answer.len(), end: answer.len() }));
    }
}
