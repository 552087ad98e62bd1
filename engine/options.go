package engine

import (
	"runtime"
	"strconv"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/gpu"
	"github.com/raygo/raygo/engine/memmon"
	"github.com/raygo/raygo/engine/schedule"

	"github.com/vmihailenco/msgpack/v5"
)

// Options say what a node is. They come as a msgpack map with the names below; what is absent or nil has its default.
type Options struct {
	Version           string             `msgpack:"version"`                   // of who starts the engine; another one is refused
	NumCPUs           *float64           `msgpack:"num_cpus"`                  // nil: those of the machine
	NumGPUs           *float64           `msgpack:"num_gpus"`                  // nil: those that are found
	VisibleGPUs       *string            `msgpack:"cuda_visible_devices"`      // the variable, where it is set
	GPUProbe          string             `msgpack:"gpu_probe"`                 // path of raygo-gpus; "": GPUs have no names
	NVMLLibrary       string             `msgpack:"nvml_library"`              // instead of the system's libnvidia-ml
	Resources         map[string]float64 `msgpack:"resources"`                 // more, by name
	Labels            map[string]string  `msgpack:"labels"`                    // of the node
	Memory            int64              `msgpack:"memory"`                    // bytes tasks may ask for; 0: what is available, without the object store
	ObjectStoreMemory int64              `msgpack:"object_store_memory"`       // bytes; 0: 30 % of the machine's
	SpillDirs         []string           `msgpack:"spill_dirs"`                // nil: one in the session's folder
	SpillThreshold    *float64           `msgpack:"object_spilling_threshold"` // part of the store from which on idle objects are copied to disk; nil: 0.8
	TempDir           string             `msgpack:"temp_dir"`                  // where session folders are made
	SessionName       string             `msgpack:"session_name"`
	Executable        string             `msgpack:"executable"` // of workers: a Python with raygo
	Env               map[string]string  `msgpack:"env"`        // of workers, on top of ours
	NodeIP            string             `msgpack:"node_ip"`
	Listen            bool               `msgpack:"listen"`                             // accept other programs at the session's socket
	InfeasibleTimeout *float64           `msgpack:"infeasible_timeout_s"`               // nil: 10; negative: wait for ever
	StoreWarnAfter    float64            `msgpack:"store_warn_after_s"`                 // how long the store may be nearly full before the user is told; 0: 10; negative: never
	WorkerIdle        float64            `msgpack:"worker_idle_s"`                      // 0: 60
	GracefulShutdown  *int64             `msgpack:"actor_graceful_shutdown_timeout_ms"` // for a process that was asked to end; nil: 30000
	MaxLineage        *int64             `msgpack:"max_lineage_bytes"`                  // kept to make lost values again; nil: 1 GiB; 0: none
	Prestart          *int               `msgpack:"prestart"`                           // workers started with a job; nil or -1: as many as CPUs

	MemoryThreshold *float64 `msgpack:"memory_usage_threshold"`       // the part of memory above which processes are ended; nil: 0.95
	MinMemoryFree   *int64   `msgpack:"min_memory_free_bytes"`        // while so much is free, none is; nil or negative: the threshold alone counts
	MemoryRefresh   *int64   `msgpack:"memory_monitor_refresh_ms"`    // nil: 250; 0: none is
	OOMRetries      *int     `msgpack:"task_oom_retries"`             // of tasks that were; negative: without end; nil: see oomRetry
	OOMRetryDelay   *int64   `msgpack:"task_oom_retry_delay_base_ms"` // before the first one, then twice as long each time; nil: 1000

	// RegisterFD is told of every descriptor that a forked child must close.
	RegisterFD func(fd int, on bool) `msgpack:"-"`
	// Launch starts a template process; nil: engine/worker's.
	Launch Launcher `msgpack:"-"`
	// ProcRoot is a folder with a proc and a sys of its own, for tests.
	ProcRoot string `msgpack:"-"`

	memory  *memmon.Source // nil: the machine does not say
	gpuIDs  []string       // what to put into CUDA_VISIBLE_DEVICES for each GPU
	gpuLost error          // why nothing but their number is known of the GPUs; nil: it is, or there are none
}

// ParseOptions reads the map that raygo_engine_start gets.
func ParseOptions(raw []byte) (Options, error) {
	var o Options
	if err := msgpack.Unmarshal(raw, &o); err != nil {
		return o, errs.New(errs.EINVAL, "the engine's options are not the map they should be: %w", err)
	}
	return o, nil
}

func (o *Options) infeasibleTimeout() time.Duration {
	if o.InfeasibleTimeout == nil {
		return 10 * time.Second
	}
	return time.Duration(*o.InfeasibleTimeout * float64(time.Second))
}

func (o *Options) spillAt() float64 {
	if o.SpillThreshold == nil {
		return 0.8
	}
	return max(*o.SpillThreshold, 1e-9) // 0 is the store's own default
}

func (o *Options) storeWarnAfter() time.Duration {
	if o.StoreWarnAfter == 0 {
		return 10 * time.Second
	}
	return time.Duration(o.StoreWarnAfter * float64(time.Second))
}

func (o *Options) workerIdle() time.Duration {
	if o.WorkerIdle <= 0 {
		return time.Minute
	}
	return time.Duration(o.WorkerIdle * float64(time.Second))
}

func (o *Options) memorySettings() memmon.Settings {
	s := memmon.Settings{Threshold: 0.95, MinFree: -1}
	if o.MemoryThreshold != nil {
		s.Threshold = *o.MemoryThreshold
	}
	if o.MinMemoryFree != nil {
		s.MinFree = *o.MinMemoryFree
	}
	return s
}

func (o *Options) memoryRefresh() time.Duration { return milliseconds(o.MemoryRefresh, 250) }

func (o *Options) gracefulShutdown() time.Duration { return milliseconds(o.GracefulShutdown, 30_000) }

func (o *Options) oomRetryDelay() time.Duration { return milliseconds(o.OOMRetryDelay, 1000) }

func milliseconds(given *int64, otherwise int64) time.Duration {
	if given != nil {
		otherwise = max(*given, 0)
	}
	return time.Duration(otherwise) * time.Millisecond
}

func (o *Options) maxLineage() int64 {
	if o.MaxLineage == nil {
		return 1 << 30
	}
	return max(*o.MaxLineage, 0)
}

// complete fills in what depends on the machine and says what the node has.
func (o *Options) complete() (schedule.Resources, error) {
	if t := o.memorySettings().Threshold; !(t >= 0 && t <= 1) {
		return nil, errs.New(errs.EINVAL, "memory_usage_threshold is %v; it is a part of the memory, from 0 to 1", t)
	}
	total, available := o.openMemory()
	if o.ObjectStoreMemory == 0 {
		o.ObjectStoreMemory = max(total*3/10, 64<<20)
	}
	if o.ObjectStoreMemory < 1<<20 {
		return nil, errs.New(errs.EINVAL, "object_store_memory is %d bytes; the least is 1 MiB", o.ObjectStoreMemory)
	}
	if o.memory != nil && o.ObjectStoreMemory > total {
		return nil, errs.New(errs.EINVAL, "object_store_memory is %d bytes, and there are %d bytes of memory: choose less; what does not fit goes to disk", o.ObjectStoreMemory, total)
	}
	if t := o.SpillThreshold; t != nil && !(*t >= 0 && *t <= 1) {
		return nil, errs.New(errs.EINVAL, "object_spilling_threshold is %v; it is a part of the object store, from 0 to 1", *t)
	}
	if o.Memory == 0 {
		o.Memory = max(available-o.ObjectStoreMemory, total/20)
	}
	if o.NodeIP == "" {
		o.NodeIP = "127.0.0.1"
	}
	r := schedule.Resources{
		schedule.CPU:             schedule.Amount(runtime.NumCPU()) * schedule.One,
		"memory":                 schedule.FromFloat(float64(o.Memory)),
		"object_store_memory":    schedule.FromFloat(float64(o.ObjectStoreMemory)),
		"node:" + o.NodeIP:       schedule.One,
		"node:__internal_head__": schedule.One,
	}
	if o.NumCPUs != nil {
		r[schedule.CPU] = schedule.FromFloat(*o.NumCPUs)
	}
	kind := o.completeGPUs(r)
	for name, f := range o.Resources {
		if _, taken := r[name]; taken || name == schedule.GPU {
			return nil, errs.New(errs.EINVAL, "resources names %q, which has an option of its own", name)
		}
		r[name] = schedule.FromFloat(f)
	}
	if name := "accelerator_type:" + kind; kind != "" && r[name] == 0 {
		r[name] = schedule.One
	}
	for name, a := range r {
		if a < 0 {
			return nil, errs.New(errs.EINVAL, "the node is to have %v %s; an amount cannot be negative", a, name)
		}
	}
	return r, nil
}

// openMemory finds out how much memory there is, and how much of it is free now.
func (o *Options) openMemory() (total, available int64) {
	source, err := memmon.Open(o.ProcRoot, o.memorySettings())
	if err != nil {
		return 4 << 30, 4 << 30
	}
	o.memory = source
	total, available = source.Limit(), source.Limit()
	if u, err := source.Read(); err == nil {
		available = u.Limit - u.Used
	}
	return total, available
}

// completeGPUs adds the GPUs that are found, or that the user says there are, and returns their kind where it is known.
func (o *Options) completeGPUs(r schedule.Resources) (kind string) {
	var found []gpu.Device
	if o.NumGPUs == nil || *o.NumGPUs > 0 {
		found, o.gpuLost = gpu.Find(gpu.Machine{Root: o.ProcRoot, Probe: o.GPUProbe, Library: o.NVMLLibrary, Visible: o.VisibleGPUs})
	}
	gpus := float64(len(found))
	if o.NumGPUs != nil {
		gpus = *o.NumGPUs
	}
	if gpus != 0 {
		r[schedule.GPU] = schedule.FromFloat(gpus)
	}
	o.gpuIDs = gpu.IDs(found, o.VisibleGPUs)
	for len(o.gpuIDs) < int(gpus+0.9999) { // a user may say that there are more than can be seen, as tests do
		o.gpuIDs = append(o.gpuIDs, strconv.Itoa(len(o.gpuIDs)))
	}
	if len(found) > 0 {
		kind = gpu.AcceleratorType(found[0].Name)
	}
	return kind
}
