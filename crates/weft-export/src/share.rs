//! Shares of clients, and the exports that they have chosen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_engine::Class;
use weft_units::{ClientId, Group};

/// Class, weight and group of clients, which their requests carry to the schedulers of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientShare {
    /// I/O class of the requests.
    pub class: Class,
    /// Weight, 1 to 1000; 0 for the default of 100.
    pub weight: u16,
    /// Group of the clients: one of those that [`crate::ServeOptions::groups`] names.
    pub group: Group,
}

/// Names of the exports that clients have chosen, by client.
#[derive(Debug, Default)]
pub(crate) struct ChosenExports(Mutex<BTreeMap<ClientId, Arc<str>>>);

impl ChosenExports {
    pub(crate) fn enter(&self, client: ClientId, export: Arc<str>) {
        self.names().insert(client, export);
    }

    pub(crate) fn leave(&self, client: ClientId) {
        self.names().remove(&client);
    }

    pub(crate) fn export_of(&self, client: ClientId) -> Option<String> {
        self.names().get(&client).map(|name| name.to_string())
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<ClientId, Arc<str>>> {
        // A panic elsewhere leaves the map consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
