//! Where libraygo.so is: `RAYGO_LIB_DIR`, else where `make build` at the top of the tree puts it.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=RAYGO_LIB_DIR");
    let folder = env::var_os("RAYGO_LIB_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../python/raygo"),
        PathBuf::from,
    );
    let folder = folder.canonicalize().unwrap_or(folder);
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=raygo");
    // For this package's own tests and examples; a program that depends on it says the same in its own build.rs.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    println!("cargo:lib_dir={}", folder.display());
}
