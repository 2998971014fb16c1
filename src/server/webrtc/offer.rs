//! Checks of a client's offer (SDP, RFC 8866) before any work, and what is taken out of it.

use str0m::media::Mid;

use super::events::EVENT_MAX_BYTES;

/// Most media descriptions: audio, the data channel, and a few that voxbridge declines, such as video.
const MEDIA_MAX: usize = 8;
/// Longest message of a client that names no bound, bytes (RFC 8841 §6.1).
const MESSAGE_MAX_BYTES: usize = 64 * 1024;

/// Checks an offer, and returns it without the client's addresses. voxbridge never sends anything to an address that did not
/// prove itself (ICE lite, RFC 8445 §2.5), so that it needs none of them.
///
/// # Errors
/// The mistake in the offer, in words.
pub(super) fn checked(offer: &str) -> Result<String, String> {
    let is_address = |line: &str| line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates");
    let lines = || offer.lines().map(str::trim_end);
    let media =
        |kind: &str| lines().filter(|line| line.starts_with("m=") && line[2..].starts_with(kind)).count();
    if !offer.starts_with("v=0") {
        return Err("The offer is no SDP".to_owned());
    }
    if media("audio ") == 0 || media("application ") == 0 {
        return Err("The offer needs an audio track and a data channel".to_owned());
    }
    if media("") > MEDIA_MAX {
        return Err(format!("The offer has more than {MEDIA_MAX} media descriptions"));
    }
    Ok(lines().filter(|line| !is_address(line)).flat_map(|line| [line, "\r\n"]).collect())
}

/// The names of the offer's audio tracks.
pub(super) fn audio_mids(offer: &str) -> Vec<Mid> {
    let mut is_audio = false;
    let mid_of_audio = |line: &str| {
        if line.starts_with("m=") {
            is_audio = line.starts_with("m=audio ");
        }
        line.trim_end().strip_prefix("a=mid:").filter(|_| is_audio).map(Mid::from)
    };
    offer.lines().filter_map(mid_of_audio).collect()
}

/// Properties that all offers of one peer connection share (JSEP, RFC 9429 §5.2.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The certificate's hash.
    fingerprint: Option<String>,
    /// Kind and name of each media description.
    media: Vec<(String, Option<String>)>,
}

impl Layout {
    pub(super) fn of(offer: &str) -> Self {
        let (mut fingerprint, mut media) = (None, Vec::new());
        for line in offer.lines().map(str::trim_end) {
            if let Some(description) = line.strip_prefix("m=") {
                media.push((description.split(' ').next().unwrap_or_default().to_owned(), None));
            } else if let Some(hash) = line.strip_prefix("a=fingerprint:") {
                fingerprint.get_or_insert_with(|| hash.to_owned());
            } else if let (Some(mid), Some((_, name))) = (line.strip_prefix("a=mid:"), media.last_mut()) {
                *name = Some(mid.to_owned());
            }
        }
        Self { fingerprint, media }
    }

    /// True if the next offer of the same peer connection may be like this.
    pub(super) fn may_become(&self, next: &Self) -> bool {
        self.fingerprint == next.fingerprint && next.media.starts_with(&self.media)
    }
}

/// Longest event that the data channel of this offer carries.
pub(super) fn event_max_bytes(offer: &str) -> usize {
    let channel = offer.lines().skip_while(|line| !line.starts_with("m=application ")).skip(1);
    let mut attributes = channel.take_while(|line| !line.starts_with("m="));
    let given = attributes.find_map(|line| line.trim_end().strip_prefix("a=max-message-size:")?.parse().ok());
    match given.unwrap_or(MESSAGE_MAX_BYTES) {
        // No bound.
        0 => EVENT_MAX_BYTES,
        bytes => bytes.min(EVENT_MAX_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_bounds_its_events() {
        let bytes = |attribute: &str| {
            event_max_bytes(&format!(
                "v=0\r\nm=audio 9 x\r\na=max-message-size:7\r\nm=application 9 x\r\n{attribute}\r\nm=video 9 x\r\n"
            ))
        };
        assert_eq!(bytes("a=max-message-size:16384"), 16_384);
        assert_eq!(bytes("a=max-message-size:1073741823"), EVENT_MAX_BYTES);
        assert_eq!(bytes("a=max-message-size:0"), EVENT_MAX_BYTES);
        assert_eq!(bytes("a=x"), MESSAGE_MAX_BYTES);
    }

    #[test]
    fn next_offer_of_a_peer_keeps_certificate_and_media() {
        let offer =
            "v=0\r\na=fingerprint:sha-256 AA\r\nm=audio 9 x\r\na=mid:0\r\nm=application 9 x\r\na=mid:1\r\n";
        let may_become = |next: &str| Layout::of(offer).may_become(&Layout::of(next));
        assert!(may_become(offer) && may_become(&format!("{offer}m=video 9 x\na=mid:2")));
        for (old, new) in [
            ("AA", "AB"),
            ("a=mid:1", "a=mid:2"),
            ("m=audio", "m=video"),
            ("m=application 9 x\r\na=mid:1\r\n", ""),
        ] {
            assert!(!may_become(&offer.replace(old, new)), "{old}");
        }
    }

    #[test]
    fn offer_needs_audio_and_a_channel() {
        let media = "m=audio 9 x\na=candidate:1 1 udp 1 10.0.0.1 9 typ host\nm=application 9 x\r\na=end-of-candidates";
        let checked_offer = checked(&format!("v=0\n{media}")).unwrap();
        assert_eq!(checked_offer, "v=0\r\nm=audio 9 x\r\nm=application 9 x\r\n");
        for (offer, words) in [
            (String::new(), "no SDP"),
            ("v=0\nm=audio 9 x".to_owned(), "data channel"),
            (format!("v=0\n{media}{}", "\nm=video".repeat(9)), "more than 8"),
        ] {
            assert!(checked(&offer).unwrap_err().contains(words), "{offer}");
        }
    }
}
