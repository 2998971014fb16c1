//! Pages beside the sessions, which are answered at once.
//!
//! - [`capabilities`]: what a protocol's sessions can do
//! - [`device_setup`]: where devices connect; [`setup_query`]: settings in such a request as query parameters
//! - [`playground`]: requests for the page in the browser

pub(super) mod capabilities;
pub(super) mod device_setup;
pub(super) mod playground;
mod setup_query;
