//! The tools that an answer may call: the client's, and behind them those of the tool servers.

use std::time::Duration;

use crate::vocabulary::{Tool, ToolChoice, ToolOffer, ToolServer, writable_name};

/// Most tools of an offer (OpenAI's bound).
const TOOLS_MAX: usize = 128;

/// Tools that an answer may call.
#[derive(Debug, Clone, Default)]
pub(super) struct Offer {
    /// All of them.
    pub(super) tools: ToolOffer,
    of_servers: Vec<OfferedTool>,
}

/// A tool of a server in an offer.
#[derive(Debug, Clone)]
pub(super) struct OfferedTool {
    /// Name that the model knows.
    name: String,
    pub(super) server: String,
    /// The server's own name of the tool.
    pub(super) tool: String,
    /// Longest time of a call.
    pub(super) timeout: Duration,
    /// Most calls of this server in a turn of the user.
    pub(super) calls_max: u32,
}

/// Calls on tool servers in a turn of the user.
#[derive(Debug, Clone, Default)]
pub(super) struct CallCounts(Vec<(String, u32)>);

impl CallCounts {
    /// Calls on this server so far.
    fn of(&self, server: &str) -> u32 {
        self.0.iter().find(|(name, _)| name == server).map_or(0, |(_, count)| *count)
    }

    /// Counts a call of this tool.
    ///
    /// # Errors
    /// Its server was called as often as a turn may have it.
    pub(super) fn add(&mut self, tool: &OfferedTool) -> Result<(), String> {
        let max = tool.calls_max;
        if self.of(&tool.server) >= max {
            return Err(format!("not called: {max} calls are the most in a turn; answer with what is known"));
        }
        match self.0.iter_mut().find(|(name, _)| *name == tool.server) {
            Some((_, count)) => *count += 1,
            None => self.0.push((tool.server.clone(), 1)),
        }
        Ok(())
    }

    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Offer {
    /// Adds the tools of servers to the client's offer. A name that two have gets its server's name in front; a server without
    /// calls left in this turn is left out. After a call on a server, the client's demand for a call is met.
    pub(super) fn merge(client: &ToolOffer, servers: &[ToolServer], counts: &CallCounts) -> Self {
        if servers.is_empty() {
            return Self { tools: client.clone(), of_servers: Vec::new() };
        }
        let mut merged = Self { tools: client.clone(), of_servers: Vec::new() };
        let mut tools = client.tools.to_vec();
        for server in servers.iter().filter(|server| counts.of(&server.name) < server.calls_max) {
            for tool in &server.tools {
                let Some(name) = free_name(&server.name, &tool.name, &tools, servers) else { continue };
                if tools.len() < TOOLS_MAX {
                    tools.push(Tool { name: name.clone(), ..tool.clone() });
                    merged.of_servers.push(OfferedTool {
                        name,
                        server: server.name.clone(),
                        tool: tool.name.clone(),
                        timeout: server.timeout,
                        calls_max: server.calls_max,
                    });
                }
            }
        }
        let is_demand_met = client.tools.is_empty() || !counts.is_empty();
        if is_demand_met && client.choice != ToolChoice::None {
            merged.tools.choice = ToolChoice::Auto;
        }
        merged.tools.tools = tools.into();
        merged
    }

    /// The tool of a server with this name.
    pub(super) fn find_of_server(&self, name: &str) -> Option<&OfferedTool> {
        self.of_servers.iter().find(|tool| tool.name == name)
    }
}

/// The name under which a tool of a server is offered behind `tools`; `None` if there is none.
fn free_name(server: &str, tool: &str, tools: &[Tool], servers: &[ToolServer]) -> Option<String> {
    let plain = writable_name(tool);
    let is_shared = servers
        .iter()
        .filter(|other| other.name != server)
        .any(|other| other.tools.iter().any(|other| writable_name(&other.name) == plain));
    let is_taken = |name: &str| tools.iter().any(|known| known.name == name);
    let name = if is_shared || is_taken(&plain) { writable_name(&format!("{server}_{tool}")) } else { plain };
    (!name.is_empty() && !is_taken(&name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Tool {
        Tool { name: name.to_owned(), description: None, parameters: "{}".into() }
    }

    fn server(name: &str, tools: &[&str], calls_max: u32) -> ToolServer {
        let tools = tools.iter().map(|name| tool(name)).collect();
        ToolServer { name: name.to_owned(), timeout: Duration::from_secs(20), calls_max, tools }
    }

    fn client(tools: &[&str], choice: ToolChoice) -> ToolOffer {
        let tools = tools.iter().map(|name| tool(name)).collect();
        ToolOffer { tools, choice, is_parallel: true }
    }

    fn names(offer: &Offer) -> Vec<&str> {
        offer.tools.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn names_that_clash_get_their_servers_name_in_front() {
        let servers = [server("home", &["light", "time", "a/b"], 4), server("crm", &["time", "find"], 4)];
        let offer = Offer::merge(&client(&["light"], ToolChoice::Auto), &servers, &CallCounts::default());
        assert_eq!(names(&offer), ["light", "home_light", "home_time", "a_b", "crm_time", "find"]);
        let found = offer.find_of_server("crm_time").unwrap();
        assert_eq!((found.server.as_str(), found.tool.as_str()), ("crm", "time"));
        assert_eq!(offer.find_of_server("a_b").unwrap().tool, "a/b");
        assert!(offer.find_of_server("light").is_none(), "the client's");
    }

    #[test]
    fn server_without_calls_left_is_not_offered() {
        let servers = [server("home", &["light"], 2), server("crm", &["find"], 1)];
        let none = client(&[], ToolChoice::Auto);
        let mut counts = CallCounts::default();
        let offer = Offer::merge(&none, &servers, &counts);
        for (name, is_allowed) in [("find", true), ("find", false), ("light", true), ("light", true)] {
            assert_eq!(counts.add(offer.find_of_server(name).unwrap()).is_ok(), is_allowed, "{name}");
        }
        assert_eq!(names(&Offer::merge(&none, &servers, &counts)), [""; 0]);
    }

    #[test]
    fn demand_for_a_call_is_met_by_one_and_never_made_by_servers_alone() {
        let servers = [server("home", &["light"], 2)];
        let mut called = CallCounts::default();
        let offer = Offer::merge(&client(&[], ToolChoice::Auto), &servers, &called);
        let none = CallCounts::default();
        called.add(offer.find_of_server("light").unwrap()).unwrap();
        for (tools, choice, counts, expected) in [
            (&["a"][..], ToolChoice::Required, &none, ToolChoice::Required),
            (&["a"], ToolChoice::Required, &called, ToolChoice::Auto),
            (&["a"], ToolChoice::None, &called, ToolChoice::None),
            (&[], ToolChoice::Required, &none, ToolChoice::Auto),
            (&[], ToolChoice::None, &none, ToolChoice::None),
        ] {
            let offer = Offer::merge(&client(tools, choice.clone()), &servers, counts);
            assert_eq!(offer.tools.choice, expected, "{choice:?}");
        }
    }
}
