//! What is there for all processes of a run.

use std::rc::Rc;
use std::sync::Arc;

use shunt_soft_nic::SharedFabric;

use super::library::Net;
use super::place::Town;
use super::spec::Board;
use super::steps::Steps;
use crate::sim::SimWorld;

/// What is there for all processes of a run.
#[derive(Clone)]
pub(super) struct Around {
    pub sim: Arc<SimWorld>,
    pub fabric: SharedFabric,
    pub town: Arc<Town>,
    pub net: Rc<Net>,
    pub board: Rc<Board>,
    pub steps: Rc<Steps>,
}
