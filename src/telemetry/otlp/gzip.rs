//! Compression of requests: gzip (RFC 1952) around deflate.

use miniz_oxide::deflate::compress_to_vec;

/// Effort, 0 to 10: what gzip and its libraries take by default.
const LEVEL: u8 = 6;
/// Magic number, deflate, no flags, no time, no special effort, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// Checksums of single bytes.
const TABLE: [u32; 256] = make_table();

const fn make_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// Compresses a request to one gzip member.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut compressed = HEADER.to_vec();
    compressed.extend(compress_to_vec(bytes, LEVEL));
    compressed.extend(crc32(bytes).to_le_bytes());
    // The length counts modulo 2³².
    compressed.extend((bytes.len() as u32).to_le_bytes());
    compressed
}

#[cfg(test)]
mod tests {
    use miniz_oxide::inflate::decompress_to_vec;

    use super::*;

    #[test]
    fn checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn compressed_request_is_smaller_and_becomes_itself_again() {
        let request = b"voxbridge_sessions_total ".repeat(400);
        let compressed = gzip(&request);
        assert!(compressed.len() < request.len() / 10, "{}", compressed.len());
        let (head, rest) = compressed.split_at(HEADER.len());
        let (deflated, end) = rest.split_at(rest.len() - 8);
        assert_eq!((head, decompress_to_vec(deflated).unwrap()), (&HEADER[..], request.clone()));
        assert_eq!(end[4..], (request.len() as u32).to_le_bytes());
    }
}
