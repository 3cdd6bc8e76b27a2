//! Extended attributes, and a copy of the latest for the thread that receives the kernel's
//! requests.

use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use weft_files::tree::Attribute;

use super::View;
use crate::numbers::Named;

/// Extended attributes of the inode for which they were last read, with its number. A program lists
/// the names of attributes and then requests their values. The thread that receives the kernel's
/// requests answers the requests for values from this copy, without the thread of the view.
pub(crate) type Latest = Arc<Mutex<Option<(u64, Arc<Vec<Attribute>>)>>>;

/// Extended attributes of an inode from the copy; `None` if those that were read last belong to
/// another inode.
pub(crate) fn latest(latest: &Latest, number: u64) -> Option<Arc<Vec<Attribute>>> {
    let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    latest.as_ref().filter(|it| it.0 == number).map(|(_, attributes)| Arc::clone(attributes))
}

impl View {
    /// Extended attributes of an inode, from the copy or from the tree. The top folder and its
    /// files have none.
    pub(crate) fn extended(&mut self, number: u64) -> Result<Arc<Vec<Attribute>>, Errno> {
        if let Some(attributes) = latest(&self.latest, number) {
            return Ok(attributes);
        }
        let found = match self.named(number)? {
            Named::Root | Named::File(_) => Vec::new(),
            Named::Node(..) => {
                let (at, node) = self.node(number)?;
                let found = self.tree(at).0.attributes(&node);
                found.map_err(|error| self.lost(number, &error))?
            }
        };
        let found = Arc::new(found);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some((number, Arc::clone(&found)));
        Ok(found)
    }

    /// Reads the extended attributes of a file while its content is being read: a program that
    /// copies the file requests them next, and they can then be answered from memory. An error is
    /// ignored here; the request for the attributes reads them again and reports it.
    pub(crate) fn expect_extended(&mut self, number: u64) {
        let Ok(Named::Node(at, id)) = self.named(number) else { return };
        if latest(&self.latest, number).is_some() {
            return;
        }
        let tree = self.tree(at).0;
        if let Ok(found) = tree.node(id).and_then(|node| tree.attributes(&node)) {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            *latest = Some((number, Arc::new(found)));
        }
    }

    /// The copy of the attributes that were read last, to be shared with another thread.
    pub(crate) fn latest(&self) -> Latest {
        Arc::clone(&self.latest)
    }
}
