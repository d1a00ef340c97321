"""Every label, annotation, resource and object name, once.

Nothing here computes; a name that two modules use lives here and nowhere else.
"""

from typing import Final

GROUP: Final = "vgpu.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

INVENTORY_KIND: Final = "GpuNodeInventory"
INVENTORY_PLURAL: Final = "gpunodeinventories"
QUEUE_KIND: Final = "GpuQueue"
QUEUE_PLURAL: Final = "gpuqueues"
PREEMPTION_KIND: Final = "GpuPreemption"
PREEMPTION_PLURAL: Final = "gpupreemptions"

NAMESPACE: Final = "vgpu-system"
OPERATOR_ACCOUNT: Final = "vgpu-operator"
SCHEDULER_ACCOUNT: Final = "vgpu-scheduler"
AGENT_ACCOUNT: Final = "vgpu-agent"
SCHEDULER_NAME: Final = "vgpu-scheduler"

AGENT_FIELD_MANAGER: Final = "vgpu-agent"
OPERATOR_FIELD_MANAGER: Final = "vgpu-operator"

LEASE_NAME: Final = "vgpu-operator"
EXTENDER_SERVICE: Final = "vgpu-extender"
EXTENDER_PORT: Final = 9443
HTTP_SERVICE: Final = "vgpu-operator-metrics"
HTTP_PORT: Final = 8080
EXTENDER_TLS_SECRET: Final = "vgpu-extender-tls"
SCHEDULER_CLIENT_SECRET: Final = "vgpu-scheduler-client"

# Annotations that only the operator may write (held by a ValidatingAdmissionPolicy).
OWN_PREFIX: Final = "vgpu.dev/"
ASSIGNMENT_ANNOTATION: Final = "vgpu.dev/assignment"
CDI_KIND: Final = "vgpu.dev/alloc"
WAKE_ANNOTATION: Final = "vgpu.dev/wake"
RECORDS_ANNOTATION: Final = "vgpu.dev/evicted-pods"
LEASE_ADDRESS_ANNOTATION: Final = "vgpu.dev/extender-address"
AGENT_POD_LABEL: Final = ("app.kubernetes.io/name", "vgpu-agent")
OPERATOR_POD_LABEL: Final = ("app.kubernetes.io/name", "vgpu-operator")

# Labels and annotations that users may set.
POLICY_QUEUE: Final = "policy.vgpu.dev/queue"
POLICY_SCORE: Final = "policy.vgpu.dev/score"
POLICY_ROUTE: Final = "policy.vgpu.dev/route"
POLICY_POD_FAILURE: Final = "policy.vgpu.dev/pod-failure-policy"

# Labels or annotations by which a pod names its queue, the first one found counts (preemption.md 4.1).
QUEUE_KEYS: Final = (
    "scheduling.volcano.sh/queue-name",
    "kueue.x-k8s.io/queue-name",
    "kai.scheduler/queue",
    POLICY_QUEUE,
)

# What a pod says about its own eviction.
VOLCANO_PREEMPTABLE: Final = "volcano.sh/preemptable"
VOLCANO_COOLDOWN: Final = "volcano.sh/cooldown-time"
POLICY_EVICT_BARE: Final = "policy.vgpu.dev/evict-bare"
POLICY_CHECKPOINT: Final = "policy.vgpu.dev/checkpoint"

# With whom a pod runs, and the gate behind which its members wait for each other.
POLICY_GANG: Final = "policy.vgpu.dev/gang"
GANG_GATE: Final = "vgpu.dev/gang"
POLICY_GANG_MIN: Final = "policy.vgpu.dev/gang-min"
VOLCANO_GROUP_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

# Label that says which nodes kwok plays in the devcluster.
SIMULATED_NODE_LABEL: Final = "vgpu.dev/simulated"

# Resource names of the presets.
VOLCANO_NUMBER: Final = "volcano.sh/vgpu-number"
VOLCANO_MEMORY: Final = "volcano.sh/vgpu-memory"
VOLCANO_MEMORY_PERCENT: Final = "volcano.sh/vgpu-memory-percentage"
VOLCANO_CORES: Final = "volcano.sh/vgpu-cores"
HAMI_NUMBER: Final = "nvidia.com/gpu"
HAMI_MEMORY: Final = "nvidia.com/gpumem"
HAMI_MEMORY_PERCENT: Final = "nvidia.com/gpumem-percentage"
HAMI_CORES: Final = "nvidia.com/gpucores"
HAMI_PRIORITY: Final = "nvidia.com/priority"

# What the old volcano-dp advertised and what its pods ask for.
VOLCANO_DP_MEMORY: Final = "volcano.sh/gpu-memory"
VOLCANO_DP_NUMBER: Final = "volcano.sh/gpu-number"

# Annotations that choose cards (both presets).
USE_TYPE: Final = "nvidia.com/use-gputype"
NOUSE_TYPE: Final = "nvidia.com/nouse-gputype"
HAMI_USE_UUID: Final = "nvidia.com/use-gpuuuid"
HAMI_NOUSE_UUID: Final = "nvidia.com/nouse-gpuuuid"
VOLCANO_USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
VOLCANO_NOUSE_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
HAMI_MODE: Final = "nvidia.com/vgpu-mode"
VOLCANO_MODE: Final = "volcano.sh/vgpu-mode"
NUMA_BIND: Final = "nvidia.com/numa-bind"
HAMI_NODE_POLICY: Final = "hami.io/node-scheduler-policy"
HAMI_CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
HAMI_SCORING_WEIGHTS: Final = "hami.io/device-scoring-weights"
VOLCANO_PODGROUP_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"

# Assignments of other systems, on pods.
VOLCANO_NODE: Final = "volcano.sh/vgpu-node"
VOLCANO_TIME: Final = "volcano.sh/vgpu-time"
VOLCANO_IDS: Final = "volcano.sh/vgpu-ids-new"
VOLCANO_TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
VOLCANO_BIND_TIME: Final = "volcano.sh/bind-time"
VOLCANO_BIND_PHASE: Final = "volcano.sh/bind-phase"
HAMI_NODE: Final = "hami.io/vgpu-node"
HAMI_TIME: Final = "hami.io/vgpu-time"
HAMI_ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
HAMI_TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
HAMI_BIND_TIME: Final = "hami.io/bind-time"
HAMI_BIND_PHASE: Final = "hami.io/bind-phase"
HAMI_MIG_ALLOCATIONS: Final = "hami.io/vgpu-mig-allocations"
VOLCANO_DP_INDEX: Final = "volcano.sh/gpu-index"
VOLCANO_DP_ASSIGNED: Final = "volcano.sh/gpu-assigned"

# What other node plugins publish, on nodes.
VOLCANO_DP_UNHEALTHY: Final = "volcano.sh/gpu-unhealthy-ids"
VOLCANO_REGISTER: Final = "volcano.sh/node-vgpu-register"
HAMI_REGISTER: Final = "hami.io/node-nvidia-register"

SCHEDULED_CONDITION: Final = "PodScheduled"
READY_CONDITION: Final = "Ready"
NODE_NAME_CLAIM: Final = "authentication.kubernetes.io/node-name"
MIRROR_POD_ANNOTATION: Final = "kubernetes.io/config.mirror"
