//! Finds the dialects of upstreams whose configuration has `dialect = "auto"`: asks each server for the pages that the
//! dialects' files name under `[detect]`, and where a page is not enough, tries a [WebSocket](socket_sign).
//!
//! Without an answer that fits, the upstream counts as a MiniCPM-o-Demo gateway, and is asked again later.

mod socket_sign;

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info};

use super::{Config, UpstreamConfig};
use crate::{
    secret::redacted_url,
    server::upstream_pool::http_page::HttpPage,
    simulator::SIMULATED_HEADER,
    spelling::{Library, upstream::DialectSign},
};

/// Time for all pages of one server.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// A page that every server answers, if only with an error.
const HEALTH_PAGE: &str = "/health";
/// Bytes of a page that are searched.
const PAGE_MAX_BYTES: usize = 64 * 1024;

impl Config {
    /// True if some upstream's dialect is still to be found.
    pub fn has_unknown_dialects(&self) -> bool {
        self.upstream.iter().any(UpstreamConfig::has_unknown_dialect)
    }

    /// Finds unknown dialects, mostly within 2 s. Those of servers that do not answer stay unknown.
    pub async fn detect_dialects(&mut self) {
        // A mistake in the files is reported when they are used.
        let Ok(library) = self.load_library() else { return };
        let unknown = self.upstream.iter_mut().filter(|upstream| upstream.has_unknown_dialect());
        join_all(unknown.map(|upstream| upstream.detect_dialect(&library))).await;
    }

    /// Takes over the dialects that were found for upstreams whose entries have not changed.
    pub(super) fn keep_dialects(&mut self, known: &Self) {
        for upstream in self.upstream.iter_mut().filter(|upstream| upstream.has_unknown_dialect()) {
            let same = known.upstream.iter().find(|known| upstream.is_found_as(known));
            if let Some(same) = same {
                upstream.clone_from(same);
            }
        }
    }

    /// Takes over the dialects of the same URLs, for servers that do not answer now.
    pub(super) fn adopt_dialects(&mut self, known: &Self) {
        for upstream in self.upstream.iter_mut().filter(|upstream| upstream.has_unknown_dialect()) {
            if let Some(known) = known.upstream.iter().find(|known| known.url == upstream.url) {
                upstream.dialect.clone_from(&known.dialect);
                upstream.is_dialect_found = known.is_dialect_found;
            }
        }
    }
}

impl UpstreamConfig {
    /// True if the dialect is still to be found.
    pub fn has_unknown_dialect(&self) -> bool {
        self.dialect == super::upstreams::AUTO
    }

    /// True if the other is the same entry after its dialect was found.
    fn is_found_as(&self, other: &Self) -> bool {
        let dialect = other.dialect.clone();
        other.is_dialect_found && Self { dialect, is_dialect_found: true, ..self.clone() } == *other
    }

    /// True if a simulated server answers at this URL, which says so in its pages.
    pub async fn is_simulated(&self, library: &Library) -> bool {
        let dialer = self.mapping(library).and_then(|mapping| self.build_dialer(&mapping));
        let Ok((_, dialer)) = dialer else { return false };
        let page = timeout(DETECTION_TIMEOUT, dialer.fetch_page(HEALTH_PAGE, PAGE_MAX_BYTES)).await;
        page.is_ok_and(|page| page.is_ok_and(|page| page.text.contains(&format!("\r\n{SIMULATED_HEADER}:"))))
    }

    async fn detect_dialect(&mut self, library: &Library) {
        let url = redacted_url(&self.url);
        match self.find_dialect(library).await {
            Some(name) => {
                info!(url, dialect = name, "dialect of the upstream found");
                (self.dialect, self.is_dialect_found) = (name, true);
            }
            None => debug!(url, "the upstream's dialect is not known yet"),
        }
    }

    /// The first dialect that has a sign which the server shows.
    async fn find_dialect(&self, library: &Library) -> Option<String> {
        let pages_until = Instant::now() + DETECTION_TIMEOUT;
        let mut pages: BTreeMap<&str, Option<HttpPage>> = BTreeMap::new();
        for mapping in library.upstreams() {
            for sign in &mapping.detect {
                let (_, dialer) = self.build_dialer(mapping).ok()?;
                if !pages.contains_key(&*sign.path) {
                    let page = timeout_at(pages_until, dialer.fetch_page(&sign.path, PAGE_MAX_BYTES)).await;
                    pages.insert(&sign.path, page.ok().and_then(Result::ok));
                }
                let page = pages.get(&*sign.path).and_then(Option::as_ref);
                let Some(page) = page.filter(|page| has_signs(page, sign)) else { continue };
                let shown = match &sign.socket {
                    Some(socket) => socket_sign::shown_dialect(&dialer, socket, mapping, library, page).await,
                    None => Some(mapping.name.clone()),
                };
                if shown.is_some() {
                    return shown;
                }
            }
        }
        None
    }
}

fn has_signs(page: &HttpPage, sign: &DialectSign) -> bool {
    let text = page.text.to_ascii_lowercase();
    let has = |sign: &String| text.contains(&sign.to_ascii_lowercase());
    sign.contains.iter().all(has) && !sign.lacks.iter().any(has)
}
