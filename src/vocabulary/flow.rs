//! Flow control between the client and the upstreams, as the driver sees it.

/// Audio and lanes that the driver holds back, because the client reads more slowly than upstreams answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowControl {
    /// The client has not read what was sent. Its audio waits until it has.
    pub is_client_behind: bool,
    /// Lanes that make audio or text for the client are not read, so that their upstreams wait.
    pub are_lanes_held: bool,
}
