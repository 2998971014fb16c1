//! Encodings of a Matroska track: compression that a reader undoes (RFC 9559 §5.1.4.1.31).

use bytes::Bytes;

use super::element::*;

/// Longest packet. PCM takes up to 20 times its length while it is decoded. Packets of recordings have up to 100 KB.
const PACKET_MAX_BYTES: usize = 1 << 20;

/// The encoding of the packets of a track.
#[derive(Default)]
pub(super) struct Encoding {
    kind: Kind,
    /// The codec's header is encoded, too.
    has_private: bool,
    /// Why it cannot be undone.
    pub(super) problem: Option<String>,
}

#[derive(Default)]
enum Kind {
    #[default]
    None,
    Zlib,
    /// Bytes that all packets begin with.
    Stripped(Bytes),
}

impl Encoding {
    pub(super) fn parse(file: &Bytes, track: Element) -> Self {
        let list = track.child(file, CONTENT_ENCODINGS);
        let mut encodings = list
            .into_iter()
            .flat_map(|list| list.children(file))
            .filter(|child| child.id == CONTENT_ENCODING);
        let Some(first) = encodings.next() else { return Self::default() };
        if encodings.next().is_some() {
            return Self::unsupported("packets that are encoded twice");
        }
        let scope = first.child(file, ENCODING_SCOPE).map_or(1, |scope| scope.number(file));
        let Some(compression) = first.child(file, COMPRESSION) else {
            return Self::unsupported("packets that are encrypted");
        };
        let algorithm = compression.child(file, COMPRESSION_ALGORITHM).map_or(0, |kind| kind.number(file));
        let settings =
            compression.child(file, COMPRESSION_SETTINGS).map_or(&[][..], |bytes| bytes.bytes(file));
        let kind = match algorithm {
            0 => Kind::Zlib,
            3 => Kind::Stripped(file.slice_ref(settings)),
            1 => return Self::unsupported("packets with the compression bzip2"),
            2 => return Self::unsupported("packets with the compression LZO"),
            _ => return Self::unsupported("packets with an unknown compression"),
        };
        let kind = if scope & 1 == 1 { kind } else { Kind::None };
        Self { kind, has_private: scope & 2 == 2, problem: None }
    }

    fn unsupported(problem: &str) -> Self {
        Self { problem: Some(problem.to_owned()), ..Self::default() }
    }

    /// The codec's header as it was.
    pub(super) fn decode_private(&self, private: &[u8]) -> Vec<u8> {
        if !self.has_private {
            return private.to_vec();
        }
        self.decode(Bytes::copy_from_slice(private)).map_or_else(Vec::new, |bytes| bytes.to_vec())
    }

    /// A packet as it was; `None` if it is damaged.
    pub(super) fn decode(&self, packet: Bytes) -> Option<Bytes> {
        match &self.kind {
            Kind::None => Some(packet),
            Kind::Zlib => {
                let inflated =
                    miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&packet, PACKET_MAX_BYTES);
                inflated.ok().map(Bytes::from)
            }
            Kind::Stripped(start) => Some([&start[..], &packet].concat().into()),
        }
    }
}
