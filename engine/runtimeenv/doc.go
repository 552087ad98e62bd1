// Package runtimeenv builds what a runtime_env asks for: variables, files and Python packages that a job's or a task's workers have.
//
// Build turns the JSON text of a runtime_env into the interpreter, search path, working folder and variables with which a template of workers
// is started. Files are copied by content into the session, so that workers see what was there when they were asked for, and packages
// are installed into virtual environments that are kept in a cache and shared between sessions. Whatever is built is built once, however
// many ask for it at a time, in this process or in others.
//
// Fields: env_vars, working_dir, excludes, py_modules, pip, uv, config. Any other is an error that names it.
package runtimeenv
