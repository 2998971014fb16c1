//! One simulated gateway in virtual time. Not here: reactions to the outputs, which belong to the test.

use std::{
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

use voxbridge::simulator::{Gateway, SimInput, SimOutput, SimulatorConfig};

/// A gateway, and the instant at which it wants to be called; `None` if it waits for an input.
pub struct VirtualGateway {
    gateway: Gateway,
    pub wait: Option<Instant>,
}

impl VirtualGateway {
    /// A gateway that starts at this instant, and at this time of day.
    pub fn new(config: SimulatorConfig, at: Instant, unix: Duration) -> Self {
        Self { gateway: Gateway::new(config, at, unix), wait: None }
    }

    /// Passes an input to the gateway. Returns its outputs, without [`SimOutput::Wait`].
    ///
    /// # Panics
    /// If there are 10 000: they do not end.
    pub fn input(&mut self, now: Instant, input: SimInput<'_>) -> Vec<SimOutput> {
        self.gateway.handle_input(now, input);
        let mut outputs = Vec::new();
        while outputs.len() < 10_000 {
            match self.gateway.poll_output(now) {
                SimOutput::Wait(until) => {
                    self.wait = until;
                    return outputs;
                }
                output => outputs.push(output),
            }
        }
        panic!("the gateway never waits");
    }
}

impl Deref for VirtualGateway {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl DerefMut for VirtualGateway {
    fn deref_mut(&mut self) -> &mut Gateway {
        &mut self.gateway
    }
}
