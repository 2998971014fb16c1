//! Names of well-known formats that are not read, by their first bytes, so that a refusal can name them.

/// First bytes and names. Those that are short are checked further in [`name_of`].
const SIGNATURES: [(&[u8], &str); 24] = [
    (&[0x30, 0x26, 0xb2, 0x75, 0x8e, 0x66, 0xcf, 0x11], "Windows Media (ASF)"),
    (b"MAC ", "Monkey's Audio"),
    (b"tBaK", "TAK"),
    (b"wvpk", "WavPack"),
    (b"MPCK", "Musepack"),
    (b"MP+", "Musepack"),
    (b"DSD ", "DSD"),
    (b"FRM8", "DSD"),
    (b"TTA", "True Audio"),
    (b"OFR ", "OptimFROG"),
    (&[0x7f, 0xfe, 0x80, 0x01], "DTS"),
    (b".snd", "AU"),
    (b"riff\x2e\x91\xcf\x11", "Wave64"),
    (b"#!AMR", "AMR"),
    (b"#!SILK", "SILK"),
    (b"\x02#!SILK", "SILK"),
    (b"ADIF", "AAC with an ADIF header"),
    (b"Creative Voice File", "VOC"),
    (b".RMF", "RealMedia"),
    (b"FLV\x01", "Flash Video"),
    (b"MThd", "MIDI"),
    (&[0x00, 0x00, 0x01, 0xba], "MPEG program stream"),
    (b"SCRM", "music module"),
    (b"Extended Module: ", "music module"),
];

/// Length of a packet of an MPEG transport stream, bytes (ISO/IEC 13818-1 §2.4.3.2).
const TRANSPORT_PACKET: usize = 188;

/// Name of the format of a file, if it is one of these.
pub(super) fn name_of(file: &[u8]) -> Option<&'static str> {
    let signature = SIGNATURES.iter().find(|(start, _)| file.starts_with(start));
    signature.map(|(_, name)| *name).or_else(|| match file {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..] => Some("AVI"),
        // ATSC A/52 §5.4.2 and §E.2.3: the identification of the bit stream tells the two apart.
        [0x0b, 0x77, _, _, _, identification, ..] => match identification >> 3 {
            0..=10 => Some("AC-3"),
            11..=16 => Some("E-AC-3"),
            _ => None,
        },
        [0x47, ..] => {
            let is_packet = |at| file.get(at * TRANSPORT_PACKET) == Some(&0x47);
            (1..4).all(is_packet).then_some("MPEG transport stream")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_named_by_their_first_bytes() {
        let transport: Vec<u8> = [&[0x47][..], &[0; 187]].concat().repeat(4);
        for (file, name) in [
            (&b"MAC \x96\x0f\0\0"[..], Some("Monkey's Audio")),
            (b"MP+\x07\x01\x00", Some("Musepack")),
            (b"RIFF\x10\0\0\0AVI LIST", Some("AVI")),
            (&[0x0b, 0x77, 0x12, 0x34, 0x14, 0x40, 0x43], Some("AC-3")),
            (&[0x0b, 0x77, 0x00, 0xff, 0x3f, 0x86, 0xff], Some("E-AC-3")),
            (&[0x0b, 0x77, 0x00, 0xff, 0x3f, 0xff, 0xff], None),
            (&transport, Some("MPEG transport stream")),
            (&transport[..500], None),
            (b"RIFF\x10\0\0\0WAVEfmt ", None),
            (b"", None),
        ] {
            assert_eq!(name_of(file), name, "{file:02x?}");
        }
    }
}
