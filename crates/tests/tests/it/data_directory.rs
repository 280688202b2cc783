//! What a server makes of its data directory: for its owner alone, nobody else's, and never thrown away for a full disk.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use mesh_tests::{Server, Subscribe, event};

use crate::disk_full::{SmallDisk, server_on};

const SOON: Duration = Duration::from_secs(20);

/// Everything below a directory with its mode.
fn modes(directory: &Path) -> Result<BTreeMap<PathBuf, u32>> {
    let mut modes = BTreeMap::new();
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let about = std::fs::symlink_metadata(&path)?;
        modes.insert(path.clone(), about.permissions().mode() & 0o7777);
        if about.is_dir() {
            paths.extend(
                std::fs::read_dir(&path)?
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect::<Result<Vec<_>, _>>()?,
            );
        }
    }
    Ok(modes)
}

#[tokio::test]
async fn everything_in_the_data_directory_is_for_its_owner_alone_whatever_the_umask() -> Result<()> {
    for mask in ["000", "022", "277"] {
        let mut server = Server::new()?.umask(mask).without_admin_token();
        let client = server.start().await?;
        client.subscribed(&Subscribe::load_balance("c", "t").max_attempts(1)).await?;
        client.published("t", [event("1"), event("2")]).await?;
        client.receive("c", 2, SOON).await?;
        // The databases begin other files when they are opened again.
        server.stop().await?;
        server.start().await?;
        let modes = modes(server.data_directory())?;
        ensure!(modes.keys().any(|path| path.ends_with("CURRENT")), "{modes:?}");
        for (path, mode) in modes {
            let right = if path.is_dir() { 0o700 } else { 0o600 };
            ensure!(mode == right, "umask {mask}: {} has the mode {mode:o}", path.display());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_directory_with_files_of_somebody_else_is_refused_naming_one_and_left_as_it_was() -> Result<()> {
    for below in ["", "log", "offset", "meta"] {
        let mut server = Server::new()?;
        let folder = if below.is_empty() {
            server.data_directory().to_owned()
        } else {
            server.data_directory().join(below)
        };
        std::fs::create_dir_all(&folder)?;
        let photo = folder.join("photo.jpg");
        std::fs::write(&photo, "a photo")?;
        if !below.is_empty() {
            std::fs::write(server.data_directory().join("FORMAT"), "eventmesh data 2\n")?;
        }
        server.spawn()?;
        ensure!(server.wait_exit(SOON).await?.code() == Some(1), "{below}: {}", server.log_end(10));
        let said = server.log();
        ensure!(
            said.contains("photo.jpg") && said.contains(&folder.display().to_string()),
            "{below}: {said}"
        );
        ensure!(!said.contains("wipe"), "{below}: {said}");
        ensure!(std::fs::read_to_string(&photo)? == "a photo", "{below}");
        std::fs::remove_file(&photo)?;
        server.start().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_start_on_a_full_disk_says_so_and_what_to_free_and_loses_nothing() -> Result<()> {
    let disk = SmallDisk::mount(160)?;
    let fresh = disk.ballast("fresh", 1 << 30)?;
    let mut server = server_on(&disk)?;
    let refused = async |server: &mut Server, before: usize| -> Result<()> {
        server.spawn()?;
        ensure!(server.wait_exit(SOON).await?.code() == Some(1), "{}", server.log_end(10));
        let said = server.log().split_off(before);
        let data = server.data_directory().display().to_string();
        ensure!(said.contains("is full") && said.contains("free 64 MiB") && said.contains(&data), "{said}");
        ensure!(!said.contains("wipe") && !said.contains("backup"), "advice that destroys good data: {said}");
        Ok(())
    };
    refused(&mut server, 0).await?;
    std::fs::remove_file(fresh)?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t").from("earliest")).await?;
    client.published("t", [event("1"), event("2")]).await?;
    server.stop().await?;

    let ballast = disk.ballast("ballast", 1 << 30)?;
    let before = server.log().len();
    refused(&mut server, before).await?;
    std::fs::remove_file(&ballast)?;
    // As much as the message asks for is enough.
    let all = disk.free_bytes()?;
    let ballast = disk.ballast("ballast", usize::try_from(all.saturating_sub(64 << 20))?)?;
    let client = server.start().await?;
    ensure!(client.receive("c", 2, SOON).await?.len() == 2);
    std::fs::remove_file(ballast)?;
    Ok(())
}

#[tokio::test]
async fn a_fresh_data_directory_takes_less_than_150_mebibytes() -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mut server = Server::new()?;
    let client = server.start().await?;
    client.subscribed(&Subscribe::load_balance("c", "t")).await?;
    client.published("t", [event(1)]).await?;
    client.acked(&client.receive("c", 1, SOON).await?).await?;
    let taken = |server: &Server| -> Result<u64> {
        let paths = modes(server.data_directory())?;
        // What was reserved ahead is taken too.
        Ok(paths.keys().map(|path| path.symlink_metadata().map_or(0, |about| about.blocks() * 512)).sum())
    };
    let running = taken(&server)?;
    server.stop().await?;
    let stopped = taken(&server)?;
    ensure!(running < 150 << 20 && stopped < 150 << 20, "{running} bytes, and {stopped} after the stop");
    Ok(())
}
