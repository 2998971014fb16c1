//! Single components, so that a change can be attributed to one of them.

use std::{
    hint::black_box,
    io::{self, Cursor, Read, Write},
};

use tokio_tungstenite::tungstenite::{
    Message, WebSocket,
    protocol::{Role, WebSocketConfig},
};
use voxbridge::{
    audio::{SPEECH_RATE_HZ, pcm, resample::Resampler, vad::VoiceActivity},
    client::Codec,
    spelling::Library,
    upstream::Dialect,
    vocabulary::Frame,
};

use crate::{
    audio_input, counted,
    simulation::{self, Scenario},
};

/// Uncounted frames, hops and messages at the start; after them, buffers have reached their size.
const WARM_UP: usize = 10;

/// Voice activity detection, hop by hop.
pub(crate) fn count_hops(sound: &[i16]) -> usize {
    let mut activity = VoiceActivity::new(Default::default());
    let hops: Vec<&[i16]> = sound.chunks_exact(activity.hop_samples()).take(300).collect();
    count_each(&hops, |hop| {
        black_box(activity.push_hop(hop));
    })
}

/// A frame from 48 to 16 kHz, floats to floats.
pub(crate) fn count_resample() -> usize {
    let mut resampler = Resampler::new(audio_input::RATE_HZ as u32, SPEECH_RATE_HZ).unwrap();
    let speech: Vec<f32> = audio_input::speech(audio_input::RATE_HZ).into_iter().map(pcm::to_f32).collect();
    let frames: Vec<&[f32]> = speech.chunks_exact(audio_input::RATE_HZ / 50).collect();
    let mut out = Vec::<f32>::new();
    count_each(&frames, |frame| {
        out.clear();
        resampler.push(frame, &mut out);
    })
}

/// One second of the model's speech, from JSON to floats.
pub(crate) fn count_decode_delta() -> usize {
    let dialect = Dialect::new(Library::embedded().unwrap().upstream("minicpm-o").unwrap());
    let mut audio = String::new();
    pcm::encode_base64_f32(&audio_input::recording_16k()[..24_000], &mut audio);
    let delta = format!(
        r#"{{"type":"response.output.delta","kind":"audio","session_id":"s_1","response_id":"r_1","audio":"{audio}","metrics":{{"backend":"pytorch","kv_cache_length":170,"generate_ms":250}},"server_send_ts":1795148861.85}}"#
    );
    count_each(&vec![&delta; 30], |delta| {
        dialect.decode(Frame::Text(delta), |event, _| drop(black_box(event)));
    })
}

/// A text to speak, from JSON to the event.
pub(crate) fn count_decode_command() -> usize {
    let library = Library::embedded().unwrap();
    let mut codec = Codec::new(library.client("macaw").unwrap(), 0.0);
    let speak = r#"{"type":"tts.speak","text":"Nothing is so much to be feared as fear.","voice":"default"}"#;
    count_each(&vec![speak; 100], |speak| {
        codec.decode(Frame::Text(speak), |event| drop(black_box(event))).unwrap();
    })
}

/// Everything created when a client is accepted.
pub(crate) fn count_open_session() -> usize {
    let library = Library::embedded().unwrap();
    let mut sessions = Vec::with_capacity(100);
    count_each(&[(); 50], |()| {
        sessions.push(simulation::new_bridge(&library, Scenario::conversation(audio_input::quiet_room)));
    })
}

/// Reading masked audio frames of a client.
pub(crate) fn count_websocket_in() -> usize {
    let frame =
        audio_input::to_le_bytes(&audio_input::speech(audio_input::RATE_HZ)[..audio_input::RATE_HZ / 50]);
    let mut client = WebSocket::from_raw_socket(Cursor::new(Vec::new()), Role::Client, None);
    for _ in 0..100 {
        client.send(Message::binary(frame.clone())).unwrap();
    }
    let sent = client.get_ref().get_ref().clone();
    let mut server =
        WebSocket::from_raw_socket(Cursor::new(sent), Role::Server, Some(websocket_config(4 * 1024)));
    count_each(&[(); 100], |()| drop(black_box(server.read().unwrap())))
}

/// Sending masked units to the model; the socket costs nothing.
pub(crate) fn count_websocket_out() -> usize {
    let unit = "A".repeat(85_480);
    let mut socket =
        WebSocket::from_raw_socket(DiscardSocket, Role::Client, Some(websocket_config(16 * 1024)));
    let mut units: Vec<Message> = (0..30).map(|_| Message::text(unit.clone())).collect();
    count_each(&[(); 30], |()| socket.send(units.pop().unwrap()).unwrap())
}

/// Configured like the server's.
fn websocket_config(read_buffer_bytes: usize) -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(read_buffer_bytes).write_buffer_size(0)
}

/// Discards writes and never returns data.
struct DiscardSocket;

impl Read for DiscardSocket {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Write for DiscardSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls the function for each item, and counts all calls but the first ones.
fn count_each<T: Copy>(items: &[T], mut work: impl FnMut(T)) -> usize {
    let (first, rest) = items.split_at(WARM_UP);
    first.iter().for_each(|item| work(*item));
    counted(&mut || rest.iter().for_each(|item| work(*item)));
    rest.len()
}
