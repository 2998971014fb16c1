//! Kinds of DTLS handshake packets (RFC 6347 §4.1, §4.3.2). The library does everything else.

/// Kinds of handshake messages.
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const HELLO_VERIFY_REQUEST: u8 = 3;
/// First byte of a record with a handshake message, and the length of a record's header.
const HANDSHAKE_RECORD: u8 = 22;
const RECORD_HEADER_BYTES: usize = 13;

/// Kind of the handshake message that a packet begins with.
pub(super) fn handshake_kind(packet: &[u8]) -> Option<u8> {
    packet.get(RECORD_HEADER_BYTES).copied().filter(|_| packet[0] == HANDSHAKE_RECORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_messages_are_distinguished_from_other_packets() {
        let packet = |record, kind| [&[record, 254, 253][..], &[0; 10], &[kind]].concat();
        assert_eq!(handshake_kind(&packet(22, 3)), Some(HELLO_VERIFY_REQUEST));
        assert_eq!(handshake_kind(&packet(22, 1)), Some(CLIENT_HELLO));
        for other in [packet(23, 1), packet(0x80, 3), packet(22, 3)[..13].to_vec(), Vec::new()] {
            assert_eq!(handshake_kind(&other), None, "{other:?}");
        }
    }
}
