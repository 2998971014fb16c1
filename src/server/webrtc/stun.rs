//! Finds the call that a STUN message is for (RFC 8489 §5, RFC 8445 §7.1.1). Everything else about it is str0m's.

const HEADER_BYTES: usize = 20;
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const USERNAME: u16 = 0x0006;

/// The receiver's part of the user name in a STUN message; `None` for any other packet.
pub(super) fn local_name(packet: &[u8]) -> Option<&str> {
    let (header, mut rest) = packet.split_at_checked(HEADER_BYTES)?;
    if header[0] > 3 || header[4..8] != MAGIC_COOKIE {
        return None;
    }
    while let Some(([kind_a, kind_b, length_a, length_b], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*length_a, *length_b]));
        let value = after.get(..length)?;
        if u16::from_be_bytes([*kind_a, *kind_b]) == USERNAME {
            return Some(std::str::from_utf8(value).ok()?.split_once(':')?.0);
        }
        // Values are padded to four bytes.
        rest = after.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: &[u8]) -> Vec<u8> {
        [&[0, 1, 0, 0], &MAGIC_COOKIE[..], &[7; 12], attributes].concat()
    }

    #[test]
    fn name_is_found_after_other_attributes() {
        let other = [0x80, 0x22, 0, 3, b'a', b'b', b'c', 0];
        let name = [0, 6, 0, 7, b'm', b'e', b':', b'y', b'o', b'u', b'!', 0];
        assert_eq!(local_name(&message(&[other.as_slice(), &name].concat())), Some("me"));
    }

    #[test]
    fn other_packets_have_no_name() {
        for packet in [
            vec![],
            vec![0x80; 40],
            message(&[]),
            message(&[0, 6, 0, 9, b'm']),
            message(&[0, 6, 0, 2, 0xff, 0xff, 0, 0]),
            message(&[0, 6, 0xff, 0xff]),
            [&[0, 1, 0, 0], [0; 40].as_slice()].concat(),
        ] {
            assert_eq!(local_name(&packet), None, "{packet:?}");
        }
    }
}
