//! The words of an answer as OpenAI's reference client shows them.
//!
//! Source: `RealtimeConversation` of openai-realtime-api-beta (lib/conversation.js). It copies an item when it is created,
//! appends each part that is added to the item's content, and appends each delta to the part at its `content_index` and to the
//! words that applications show.

use super::*;

/// An item as the reference client keeps it.
#[derive(Debug, Default)]
struct ShownItem {
    content: Vec<Value>,
    /// `formatted.transcript` and `formatted.text`, which applications show.
    shown: String,
}

/// Words of all texts and transcripts in an item's content.
fn words_of(content: &[Value]) -> String {
    content.iter().filter_map(|part| part["text"].as_str().or(part["transcript"].as_str())).collect()
}

/// The assistant's item after all events.
fn show_answer(client: &Realtime) -> ShownItem {
    let mut item: Option<ShownItem> = None;
    for (_, event) in &client.events {
        match event["type"].as_str().unwrap() {
            "conversation.item.created" | "conversation.item.added"
                if event["item"]["role"] == "assistant" =>
            {
                let content = event["item"]["content"].as_array().unwrap().clone();
                item = Some(ShownItem { shown: words_of(&content), content });
            }
            "response.content_part.added" => {
                item.as_mut().expect("a part before its item").content.push(event["part"].clone());
            }
            "response.audio_transcript.delta"
            | "response.output_audio_transcript.delta"
            | "response.text.delta"
            | "response.output_text.delta" => {
                let item = item.as_mut().expect("a delta before its item");
                let delta = event["delta"].as_str().unwrap();
                let part = &mut item.content[event["content_index"].as_u64().unwrap() as usize];
                let key = if part["type"] == "audio" { "transcript" } else { "text" };
                part[key] = format!("{}{delta}", part[key].as_str().unwrap()).into();
                item.shown.push_str(delta);
            }
            _ => {}
        }
    }
    item.expect("no answer")
}

#[test]
fn reference_client_shows_the_words_of_an_answer_once() {
    for (shape, speaks) in [("ga", true), ("ga", false), ("beta", true), ("beta", false)] {
        let mut client = Realtime::with_config(config(&format!("model=gpt-realtime&shape={shape}")));
        let modalities = if speaks { json!(["audio", "text"]) } else { json!(["text"]) };
        let key = if shape == "ga" { "output_modalities" } else { "modalities" };
        client.send(&json!({"type": "response.create", "response": {
            key: modalities, "instructions": "Say hello to everybody here."}}));
        let done = client.wait_for("response.done");
        let item = show_answer(&client);
        let words = words_of(done["response"]["output"][0]["content"].as_array().unwrap());
        assert!(words.starts_with("simulated answer"), "{shape}: {words:?}");
        assert_eq!(item.shown, words, "{shape}, speaks: {speaks}");
        assert_eq!(words_of(&item.content), words, "{shape}, speaks: {speaks}");
        let added = &client.of_type("response.output_item.added")[0]["item"];
        assert_eq!((&added["content"], &added["status"]), (&json!([]), &json!("in_progress")));
    }
}
