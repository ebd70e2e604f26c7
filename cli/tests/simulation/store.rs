//! The store of a simulated fleet: SQLite behind connections that may break. The judge learns of everything that it accepts.
//!
//! It is a file, which begins as a copy of an empty database: to migrate a new one takes a third of a short life. In a life in which
//! the store fails over, a standby's copy of the file is made. A standby that is promoted has what was in the copy and nothing else,
//! and, like PostgreSQL's new timeline, begins a new epoch.

mod polling;
mod unused;
mod upkeep;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use common::time::Timestamp;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use store::sqlite::SqliteStore;
use store::{Events, RelayTurn, StoreError, Upkeep};
use tempfile::TempDir;

use crate::blocking::run;
use crate::life::Server;
use crate::line::Line;

/// The server.
pub(crate) struct StoreServer(Mutex<Served>);

struct Served {
    store: Arc<SqliteStore>,
    turn: Turn,
    /// How often it failed over: a call to the former primary has no effect on the new one.
    term: usize,
    files: Files,
    has_standby: bool,
    /// Each epoch, and the last event that it took over.
    epochs: Vec<(String, i64)>,
}

/// The process that passes events on, and until when: SQLite uses the machine's clock.
type Turn = Option<(String, Timestamp)>;

/// Where the databases are.
struct Files {
    folder: TempDir,
    /// Which one is in use.
    used: usize,
    /// How many there were: the newest is the standby's, or in use.
    made: usize,
    /// The standby, if it lags.
    standby: Option<Standby>,
}

/// A standby that receives nothing more.
struct Standby {
    turn: Turn,
}

/// An empty database's file. Each life begins with it.
static EMPTY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let files = Files::in_memory();
    let (migrated, copied) = (files.path(0), files.path(1));
    drop(run(SqliteStore::open(&migrated.display().to_string())).expect("a new store"));
    run(copy(&migrated, &copied));
    fs::read(copied).expect("an empty database")
});

impl Files {
    /// Returns a folder without a database, in memory where the machine has files there.
    fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Files { folder: folder.expect("a folder"), used: 1, made: 1, standby: None }
    }

    fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.db"))
    }
}

/// Opens a database of which no other process knows.
async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.expect("a database of this life")
}

/// Makes a file with what is in another.
async fn copy(from: &Path, to: &Path) {
    let mut on = connect(from).await;
    let copy = sqlx::query("VACUUM INTO ?1").bind(to.display().to_string());
    copy.execute(&mut on).await.expect("a copy");
    on.close().await.expect("closed");
}

impl StoreServer {
    /// Opens an empty store, which may have a standby.
    pub(crate) fn new(has_standby: bool) -> Self {
        let files = Files::in_memory();
        fs::write(files.path(1), &*EMPTY).expect("a copy of an empty database");
        let store = run(SqliteStore::open(&files.path(1).display().to_string())).expect("a new store");
        let epochs = vec![(epoch(&store), 0)];
        StoreServer(Mutex::new(Served { store: Arc::new(store), turn: None, term: 0, files, has_standby, epochs }))
    }

    pub(crate) fn has_standby(&self) -> bool {
        common::lock(&self.0).has_standby
    }

    /// Returns the store in use.
    pub(crate) fn current(&self) -> Arc<SqliteStore> {
        Arc::clone(&common::lock(&self.0).store)
    }

    fn term(&self) -> usize {
        common::lock(&self.0).term
    }

    /// Returns each epoch, oldest first, and the last event that it took over.
    pub(crate) fn epochs(&self) -> Vec<(String, i64)> {
        common::lock(&self.0).epochs.clone()
    }

    /// From now on the standby receives nothing more.
    pub(crate) fn copy(&self) {
        let mut served = common::lock(&self.0);
        if !served.has_standby {
            return;
        }
        let Served { turn, files, .. } = &mut *served;
        // One that lagged is rebuilt.
        files.standby = Some(Standby { turn: turn.clone() });
        files.made += 1;
        let (from, to) = (files.path(files.used), files.path(files.made));
        run(copy(&from, &to));
    }

    /// The standby is promoted. If it did not lag, it has everything. It begins an epoch unless it `keeps_epoch`.
    pub(crate) fn fail_over(&self, keeps_epoch: bool) {
        let lags = common::lock(&self.0).files.standby.is_some();
        if !lags {
            self.copy();
        }
        let mut served = common::lock(&self.0);
        if !served.has_standby {
            return;
        }
        let files = &mut served.files;
        files.used = files.made;
        let (path, turn) = (files.path(files.used), files.standby.take().and_then(|standby| standby.turn));
        run(async {
            // A lease is by the machine's clock there, and by ours in `turn`.
            let mut on = connect(&path).await;
            sqlx::query("UPDATE relay SET until = 0").execute(&mut on).await.expect("the relay's row");
            on.close().await.expect("closed");
        });
        let store = run(SqliteStore::open(&path.display().to_string())).expect("a copy of a store");
        if !keeps_epoch {
            run(store.begin_epoch()).expect("a new epoch");
        }
        let begun = (epoch(&store), run(store.latest_seq()).expect("its last event"));
        served.epochs.push(begun);
        (served.store, served.turn) = (Arc::new(store), turn);
        served.term += 1;
    }

    /// Takes the turn by the simulation's clock. A holder whose turn has expired releases it first.
    fn relay_turn(&self, store: &SqliteStore, turn: &RelayTurn<'_>, now: Timestamp) -> Result<Option<i64>, StoreError> {
        let mut served = common::lock(&self.0);
        if let Some((other, until)) = served.turn.as_ref().filter(|(other, _)| *other != turn.holder) {
            if *until > now {
                return Ok(None);
            }
            let over = RelayTurn { holder: other, confirmed: 0, epoch: "", lasts: Duration::ZERO };
            run(store.relay_turn(&over))?;
        }
        served.turn = Some((turn.holder.to_owned(), now.after(turn.lasts)));
        run(store.relay_turn(turn))
    }
}

fn epoch(store: &SqliteStore) -> String {
    run(store.events(0, 1)).expect("events").epoch
}

/// The store as one process sees it.
pub(crate) struct SeenStore {
    pub(crate) line: Line,
    pub(crate) server: Arc<StoreServer>,
}

fn lost() -> StoreError {
    StoreError::Late { action: "be used by this process", limit: Server::Store.patience() }
}

impl SeenStore {
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&SqliteStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (server, term) = (Arc::clone(&self.server), self.server.term());
        let run = move || if server.term() == term { call(&server.current()) } else { Err(lost()) };
        self.line.call(name, lost, run).await
    }
}
