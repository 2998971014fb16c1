//! Tests of the calls' table: limits, addresses and strangers' packets.

use std::time::Duration;

use str0m::Rtc;

use super::*;
use crate::{server::CallProtocol, telemetry::metrics::scrape::ServerSnapshot};

async fn calls() -> Calls {
    let localhost = IpAddr::from([127, 0, 0, 1]);
    let addresses = WebRtcAddresses { listen: SocketAddr::new(localhost, 0), advertise: (localhost, None) };
    Calls::bind(addresses, Metrics::new(ServerSnapshot::default), Waiting::default()).await.unwrap()
}

fn offer() -> String {
    let mut rtc = Rtc::builder().set_crypto_provider(crypto::provider()).build(Instant::now().into_std());
    let mut change = rtc.sdp_api();
    change.add_media(str0m::media::MediaKind::Audio, str0m::media::Direction::SendRecv, None, None, None);
    change.add_channel("oai-events".to_owned());
    change.apply().unwrap().0.to_sdp_string()
}

async fn accept(
    calls: &Calls,
    offer: &str,
    address: [u8; 4],
    held: &Arc<()>,
) -> Result<AcceptedCall, CallRejection> {
    accept_with_key(calls, offer, address.into(), None, held).await
}

async fn accept_with_key(
    calls: &Calls,
    offer: &str,
    address: IpAddr,
    key: Option<Arc<str>>,
    held: &Arc<()>,
) -> Result<AcceptedCall, CallRejection> {
    let held = held.clone();
    let open = move |_: &str, _, _| {
        drop(held);
        Ok(mpsc::channel(1).1)
    };
    let offer = CallOffer { sdp: offer.to_owned(), address, key, channel: CallProtocol::OpenAi.channel() };
    calls.accept(offer, &CodecThreads::default(), Box::new(open)).await
}

#[tokio::test(start_paused = true)]
async fn client_that_never_connects_is_dropped_after_30_s_with_all_it_holds() {
    let (calls, offer, held, start) = (calls().await, offer(), Arc::new(()), Instant::now());
    let accepted = accept(&calls, &offer, [10, 0, 0, 1], &held).await.unwrap();
    assert_eq!((calls.table().calls.len(), Arc::strong_count(&held)), (1, 2));
    accepted.task.await;
    let after = start.elapsed();
    assert!(after >= Duration::from_secs(30) && after < Duration::from_secs(31), "{after:?}");
    assert_eq!((calls.table().calls.len(), Arc::strong_count(&held)), (0, 1));
}

#[tokio::test]
async fn offer_without_a_known_codec_is_rejected_and_leaves_nothing() {
    let (calls, held) = (calls().await, Arc::new(()));
    let offer = include_str!("../../../tests/calls/no_codec_of_ours");
    let rejected = accept(&calls, offer, [10, 0, 0, 1], &held).await;
    assert!(matches!(rejected, Err(CallRejection::Offer(words)) if words.contains("no audio codec")));
    assert_eq!((calls.table().calls.len(), Arc::strong_count(&held)), (0, 1));
    for offer in
        [include_str!("../../../tests/calls/g722_only"), include_str!("../../../tests/calls/chromium")]
    {
        accept(&calls, offer, [10, 0, 0, 1], &held).await.unwrap();
    }
}

#[tokio::test]
async fn calls_without_a_client_are_bounded_by_address_and_in_all() {
    let (calls, offer, held) = (calls().await, offer(), Arc::new(()));
    let mut accepted = Vec::new();
    for at in 0..UNCONNECTED_MAX {
        accepted.push(accept(&calls, &offer, [10, 0, at as u8 / 8, 1], &held).await.unwrap());
    }
    assert_eq!(calls.0.waiting.counts()[1], ("calls", UNCONNECTED_MAX));
    // A newcomer is served: the oldest call of the address with the most ends.
    let _newcomer = accept(&calls, &offer, [10, 1, 0, 1], &held).await.unwrap();
    accepted.remove(0).task.await;
    assert_eq!(calls.0.waiting.counts()[1], ("calls", UNCONNECTED_MAX));
    accepted.push(accept(&calls, &offer, [10, 0, 0, 1], &held).await.unwrap());
    accepted.swap_remove(7).task.await;
    let full = accept(&calls, &offer, [10, 0, 0, 1], &held).await;
    assert!(matches!(full, Err(CallRejection::Full(words)) if words.contains("address")));
    assert!(calls.hang_up(&accepted[0].id, None) && !calls.hang_up(&accepted[0].id, Some("ann")));
    accepted.swap_remove(0).task.await;
    accept(&calls, &offer, [10, 0, 0, 1], &held).await.unwrap();
}

#[tokio::test]
async fn waiting_calls_count_for_their_key_whatever_the_address() {
    let (calls, offer, held) = (calls().await, offer(), Arc::new(()));
    let mut accepted = Vec::new();
    let mut begin = async |key: Option<&str>, at: u8| {
        let address = IpAddr::from([10, 0, at, 1]);
        let call = accept_with_key(&calls, &offer, address, key.map(Arc::from), &held).await;
        let words = call.as_ref().err().map(|rejection| format!("{rejection:?}"));
        accepted.extend(call);
        words
    };
    for at in 0..UNCONNECTED_PER_CLIENT_MAX as u8 {
        assert_eq!(begin(Some("ann"), at).await, None);
    }
    assert!(begin(Some("ann"), 99).await.unwrap().contains("of this key"), "another address helps nothing");
    // Other clients behind the same address are not concerned.
    for key in [Some("ben"), None] {
        assert_eq!(begin(key, 0).await, None);
    }
}

#[tokio::test]
async fn packets_of_strangers_cost_no_state_and_those_of_a_call_are_bounded() {
    let (calls, offer, held) = (calls().await, offer(), Arc::new(()));
    let _accepted = accept(&calls, &offer, [10, 0, 0, 1], &held).await.unwrap();
    let name = calls.table().calls.keys().next().unwrap().clone();
    let user = format!("{name}:you!");
    let check = [&[0, 1, 0, 24, 0x21, 0x12, 0xa4, 0x42], &[7; 12][..], &[0, 6, 0, 21], user.as_bytes()];
    let mut rng = fastrand::Rng::with_seed(1);
    for at in 0..10_000_u32 {
        let from = SocketAddr::from((at.to_be_bytes(), 9));
        let mut packet = vec![0; rng.usize(..300)];
        packet.iter_mut().for_each(|byte| *byte = rng.u8(..));
        calls.pass_on(&packet, from);
        calls.pass_on(&check.concat(), from);
    }
    let table = calls.table();
    assert_eq!((table.calls.len(), table.addresses.len()), (1, 0));
    assert_eq!(table.calls[&name].packets.capacity(), 0, "{QUEUED_PACKETS_MAX} checks wait, no more");
}

fn entry() -> Entry {
    Entry {
        waits: None,
        id: "rtc_1".to_owned(),
        key: None,
        packets: mpsc::channel(1).0,
        requests: mpsc::channel(1).0,
        hang_up: Arc::default(),
    }
}

#[tokio::test]
async fn client_gets_back_an_address_that_another_call_claims() {
    let calls = calls().await;
    let [mut own, mut other] = ["own", "other"]
        .map(|name| calls.register(name.into(), CallerName::Address([10, 0, 0, 1].into()), entry()).unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let owner = || calls.table().addresses[&address].clone();
    own.send(&ICE_ANSWER, address);
    other.send(&ICE_ANSWER, address);
    assert_eq!(&*owner(), "other");
    own.send(b"audio", address);
    assert_eq!(&*owner(), "other", "only a check proves the address");
    own.send(&ICE_ANSWER, address);
    drop(other);
    assert_eq!(&*owner(), "own");
}

#[test]
fn addresses_keep_their_scope() {
    let local = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 3).into();
    assert_eq!(canonical(local), local);
    assert_eq!(canonical("[::ffff:10.0.0.1]:9".parse().unwrap()), "10.0.0.1:9".parse().unwrap());
}

#[tokio::test]
async fn call_has_a_bounded_number_of_addresses() {
    let calls = calls().await;
    let mut place =
        calls.register("name".into(), CallerName::Address([10, 0, 0, 1].into()), entry()).unwrap();
    let address = |at: usize| SocketAddr::from(([127, 0, 0, 1], at as u16 + 1));
    for at in 0..ADDRESSES_MAX {
        assert!(place.has_room_for(address(at)));
        place.send(b"", address(at));
    }
    assert!(place.has_room_for(address(0)) && !place.has_room_for(address(ADDRESSES_MAX)));
    assert_eq!(calls.table().addresses.len(), ADDRESSES_MAX);
    drop(place);
    assert!(calls.table().addresses.is_empty());
}
