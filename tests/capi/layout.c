/* Prints the sizes and offsets that callers of raygo.h are compiled with.  Held against golden/layout.txt: fields may only be appended. */
#include <stdio.h>
#include "raygo.h"

#define S(type) printf("%s %zu\n", #type, sizeof(type))
#define F(type, field) printf("  %s %zu+%zu\n", #field, offsetof(type, field), sizeof(((type *)0)->field))

int main(void) {
  S(raygo_status);
  S(raygo_runtime);
  S(raygo_template);
  S(raygo_object);
  S(raygo_actor);
  S(raygo_task);
  S(raygo_token);
  S(raygo_view);
  F(raygo_view, data);
  F(raygo_view, len);
  S(raygo_buf);
  F(raygo_buf, data);
  F(raygo_buf, len);
  F(raygo_buf, owner);
  F(raygo_buf, format);
  F(raygo_buf, reserved);
  S(raygo_error);
  F(raygo_error, struct_size);
  F(raygo_error, code);
  F(raygo_error, retryable);
  F(raygo_error, message);
  F(raygo_error, detail);
  S(raygo_options);
  F(raygo_options, struct_size);
  F(raygo_options, name_space);
  F(raygo_options, job_name);
  F(raygo_options, python);
  F(raygo_options, sys_path);
  F(raygo_options, working_dir);
  F(raygo_options, env);
  F(raygo_options, runtime_env);
  F(raygo_options, log_to_driver);
  F(raygo_options, reserved);
  F(raygo_options, timeout_ns);
  F(raygo_options, num_cpus);
  F(raygo_options, num_gpus);
  F(raygo_options, resources);
  F(raygo_options, object_store_memory);
  F(raygo_options, engine_options);
  S(raygo_template_options);
  F(raygo_template_options, struct_size);
  F(raygo_template_options, name);
  F(raygo_template_options, num_returns);
  F(raygo_template_options, max_retries);
  F(raygo_template_options, retry_exceptions);
  F(raygo_template_options, max_calls);
  F(raygo_template_options, num_cpus);
  F(raygo_template_options, num_gpus);
  F(raygo_template_options, memory);
  F(raygo_template_options, resources);
  F(raygo_template_options, runtime_env);
  F(raygo_template_options, actor_name);
  F(raygo_template_options, name_space);
  F(raygo_template_options, detached);
  F(raygo_template_options, get_if_exists);
  F(raygo_template_options, max_restarts);
  F(raygo_template_options, max_task_retries);
  F(raygo_template_options, max_concurrency);
  F(raygo_template_options, reserved);
  F(raygo_template_options, extra);
  S(raygo_args);
  F(raygo_args, packed);
  F(raygo_args, refs);
  F(raygo_args, nrefs);
  S(raygo_task_info);
  F(raygo_task_info, struct_size);
  F(raygo_task_info, number);
  F(raygo_task_info, attempt);
  F(raygo_task_info, num_returns);
  F(raygo_task_info, nrefs);
  F(raygo_task_info, reserved);
  F(raygo_task_info, name);
  F(raygo_task_info, args);
  S(raygo_result);
  F(raygo_result, body);
  F(raygo_result, format);
  F(raygo_result, reserved);
  S(raygo_placement_options);
  F(raygo_placement_options, struct_size);
  F(raygo_placement_options, bundles);
  F(raygo_placement_options, strategy);
  F(raygo_placement_options, name);
  F(raygo_placement_options, detached);
  F(raygo_placement_options, reserved);
  return 0;
}
