//! Finds the dialects of upstreams whose configuration has `dialect = "auto"`: asks each server for the pages that the
//! dialects' files name under `[detect]`.
//!
//! Without an answer that fits, the upstream counts as a MiniCPM-o-Demo gateway, and is asked again later.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use tokio::time::timeout;
use tracing::{debug, info};

use super::{Config, UpstreamConfig};
use crate::{mapping::Library, secret::redacted_url};

/// Time for all pages of one server.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a page that are searched.
const PAGE_MAX_BYTES: usize = 64 * 1024;

impl Config {
    /// True if some upstream's dialect is still to be found.
    pub fn has_unknown_dialects(&self) -> bool {
        self.upstream.iter().any(UpstreamConfig::has_unknown_dialect)
    }

    /// Finds unknown dialects, within 2 s. Those of servers that do not answer stay unknown.
    pub async fn detect_dialects(&mut self) {
        // A mistake in the files is reported when they are used.
        let Ok(library) = self.load_library() else { return };
        let unknown = self.upstream.iter_mut().filter(|upstream| upstream.has_unknown_dialect());
        join_all(unknown.map(|upstream| upstream.detect_dialect(&library))).await;
    }

    /// Takes over the dialects that were found for the same URLs.
    pub(super) fn adopt_dialects(&mut self, known: &Self) {
        for upstream in self.upstream.iter_mut().filter(|upstream| upstream.has_unknown_dialect()) {
            if let Some(known) = known.upstream.iter().find(|known| known.url == upstream.url) {
                upstream.dialect.clone_from(&known.dialect);
            }
        }
    }
}

impl UpstreamConfig {
    /// True if the dialect is still to be found.
    pub fn has_unknown_dialect(&self) -> bool {
        self.dialect == super::upstreams::AUTO
    }

    async fn detect_dialect(&mut self, library: &Library) {
        let found = timeout(DETECTION_TIMEOUT, self.find_dialect(library)).await;
        let url = redacted_url(&self.url);
        match found {
            Ok(Some(name)) => {
                info!(url, dialect = name, "dialect of the upstream found");
                self.dialect = name;
            }
            _ => debug!(url, "the upstream's dialect is not known yet"),
        }
    }

    /// The first dialect whose page has its sign.
    async fn find_dialect(&self, library: &Library) -> Option<String> {
        let mut pages: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for mapping in library.upstreams() {
            let Some(sign) = mapping.detect.as_ref() else {
                continue;
            };
            if !pages.contains_key(&*sign.path) {
                let (_, dialer) = self.build_dialer(mapping).ok()?;
                let page = dialer.fetch_page(&sign.path, PAGE_MAX_BYTES).await;
                pages.insert(&sign.path, page.ok().map(|page| page.text.to_ascii_lowercase()));
            }
            let page = pages.get(&*sign.path).and_then(Option::as_ref);
            let has_signs =
                |page: &String| sign.contains.iter().all(|text| page.contains(&text.to_ascii_lowercase()));
            if page.is_some_and(has_signs) {
                return Some(mapping.name.clone());
            }
        }
        None
    }
}
