//! Answers offers: makes the peer of a client.

use std::{net::SocketAddr, sync::Arc};

use str0m::{
    Candidate, IceCreds, Rtc,
    change::SdpOffer,
    config::{CryptoProvider, DtlsCert},
    net::Protocol,
};
use tokio::time::Instant;

use super::{CallRejection, call, codec, crypto, events::EVENT_MAX_BYTES, offer};

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
        let wrong = |error: String| CallRejection::Offer(format!("The offer cannot be answered: {error}"));
        let offer = offer::checked(offer).map_err(CallRejection::Offer)?;
        let audio_mids = offer::audio_mids(&offer);
        let offer = SdpOffer::from_sdp_string(&offer).map_err(|error| wrong(error.to_string()))?;
        let mut rtc = Rtc::builder()
            .set_crypto_provider(self.crypto.clone())
            .set_dtls_cert(self.certificate.clone())
            .set_local_ice_credentials(creds)
            .set_ice_lite(true)
            .set_rtp_mode(true)
            .set_stats_interval(Some(call::STATS_INTERVAL))
            .set_sctp_max_buffered_amount(call::UNSENT_MAX_BYTES + EVENT_MAX_BYTES)
            .clear_codecs()
            .enable_opus(true, false)
            .enable_g722(true, false)
            .enable_pcmu(true, false)
            .enable_pcma(true, false)
            .build(Instant::now().into_std());
        let candidate = Candidate::host(self.advertised, Protocol::Udp)
            .map_err(|error| CallRejection::Internal(format!("[webrtc] advertise: {error}")))?;
        rtc.add_local_candidate(candidate);
        let answer = rtc.sdp_api().accept_offer(offer).map_err(|error| wrong(error.to_string()))?;
        if audio_mids.into_iter().all(|mid| codec::negotiated(&rtc, mid).is_empty()) {
            return Err(CallRejection::Offer(
                "The offer has no audio codec of Opus, G.722 and G.711".to_owned(),
            ));
        }
        Ok((rtc, answer.to_sdp_string()))
    }
}
