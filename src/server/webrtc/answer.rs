//! Answers offers: makes the peer of a client.

use std::{fmt::Display, net::SocketAddr, sync::Arc, time::Duration};

use str0m::{
    Candidate, IceCreds, Rtc,
    change::SdpOffer,
    config::{CryptoProvider, DtlsCert},
    media::Mid,
    net::Protocol,
};
use tokio::time::Instant;

use super::{CallRejection, codec, crypto, events::EVENT_MAX_BYTES, offer, outgoing::UNDELIVERED_MAX_BYTES};

/// Interval of str0m's statistics.
const STATS_INTERVAL: Duration = Duration::from_secs(5);

/// The part that the peers of all clients share.
pub(super) struct Answerer {
    /// The address in answers, as which every packet is taken to have come.
    pub(super) advertised: SocketAddr,
    crypto: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

impl Answerer {
    /// Makes the certificate.
    pub(super) fn new(advertised: SocketAddr) -> Result<Self, rcgen::Error> {
        Ok(Self { advertised, crypto: crypto::provider(), certificate: crypto::certificate()? })
    }

    /// Makes the peer of a client, and the answer to its offer.
    pub(super) fn answer(&self, offer: &str, creds: IceCreds) -> Result<(Rtc, String), CallRejection> {
        let (offer, audio_mids) = parse(offer)?;
        let mut rtc = Rtc::builder()
            .set_crypto_provider(self.crypto.clone())
            .set_dtls_cert(self.certificate.clone())
            .set_local_ice_credentials(creds)
            .set_ice_lite(true)
            .set_rtp_mode(true)
            .set_stats_interval(Some(STATS_INTERVAL))
            .set_sctp_max_buffered_amount(UNDELIVERED_MAX_BYTES + EVENT_MAX_BYTES)
            .clear_codecs()
            .enable_opus(true, false)
            .enable_g722(true, false)
            .enable_pcmu(true, false)
            .enable_pcma(true, false)
            .build(Instant::now().into_std());
        let candidate = Candidate::host(self.advertised, Protocol::Udp)
            .map_err(|error| CallRejection::Internal(format!("[webrtc] advertise: {error}")))?;
        rtc.add_local_candidate(candidate);
        let answer = rtc.sdp_api().accept_offer(offer).map_err(wrong)?;
        if audio_mids.into_iter().all(|mid| codec::negotiated(&rtc, mid).is_empty()) {
            return Err(CallRejection::Offer(
                "The offer has no audio codec of Opus, G.722 and G.711".to_owned(),
            ));
        }
        Ok((rtc, answer.to_sdp_string()))
    }

    /// Answers another offer of the same peer, and returns the name that its ICE messages carry from now on.
    pub(super) fn answer_again(rtc: &mut Rtc, offer: SdpOffer) -> Result<(String, String), CallRejection> {
        let answer = rtc.sdp_api().accept_offer(offer).map_err(wrong)?;
        Ok((answer.to_sdp_string(), rtc.direct_api().local_ice_credentials().ufrag))
    }
}

/// Checks and parses an offer. Returns the names of its audio tracks too.
pub(super) fn parse(offer: &str) -> Result<(SdpOffer, Vec<Mid>), CallRejection> {
    let offer = offer::checked(offer).map_err(CallRejection::Offer)?;
    let audio_mids = offer::audio_mids(&offer);
    SdpOffer::from_sdp_string(&offer).map(|offer| (offer, audio_mids)).map_err(wrong)
}

fn wrong(error: impl Display) -> CallRejection {
    CallRejection::Offer(format!("The offer cannot be answered: {error}"))
}
