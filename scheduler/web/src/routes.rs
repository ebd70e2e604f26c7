//! A router that remembers its paths: tests compare them with the API's description, and send every one of them what must be refused.

use axum::Router;
use axum::routing::MethodRouter;

/// A router and its paths.
pub(crate) struct Routes<S = ()> {
    pub(crate) router: Router<S>,
    pub(crate) paths: Vec<String>,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Routes { router: Router::new(), paths: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Adds a path.
    pub(crate) fn route(mut self, path: &str, methods: MethodRouter<S>) -> Self {
        self.paths.push(path.to_owned());
        Routes { router: self.router.route(path, methods), ..self }
    }
}
