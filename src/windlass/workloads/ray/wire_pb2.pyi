from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_UNSPECIFIED: _ClassVar[NodeStatus]
    NODE_RUNNING: _ClassVar[NodeStatus]
    NODE_DEAD: _ClassVar[NodeStatus]
    NODE_IDLE: _ClassVar[NodeStatus]
    NODE_DRAINING: _ClassVar[NodeStatus]
NODE_UNSPECIFIED: NodeStatus
NODE_RUNNING: NodeStatus
NODE_DEAD: NodeStatus
NODE_IDLE: NodeStatus
NODE_DRAINING: NodeStatus

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("node_id", "instance_id", "ray_node_type_name", "available_resources", "total_resources", "dynamic_labels", "node_state_version", "status", "idle_duration_ms", "node_ip_address", "instance_type_name", "node_activity", "labels")
    class AvailableResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TotalResourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class DynamicLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_LABELS_FIELD_NUMBER: _ClassVar[int]
    NODE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IDLE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    instance_id: str
    ray_node_type_name: str
    available_resources: _containers.ScalarMap[str, float]
    total_resources: _containers.ScalarMap[str, float]
    dynamic_labels: _containers.ScalarMap[str, str]
    node_state_version: int
    status: NodeStatus
    idle_duration_ms: int
    node_ip_address: str
    instance_type_name: str
    node_activity: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, node_id: _Optional[bytes] = ..., instance_id: _Optional[str] = ..., ray_node_type_name: _Optional[str] = ..., available_resources: _Optional[_Mapping[str, float]] = ..., total_resources: _Optional[_Mapping[str, float]] = ..., dynamic_labels: _Optional[_Mapping[str, str]] = ..., node_state_version: _Optional[int] = ..., status: _Optional[_Union[NodeStatus, str]] = ..., idle_duration_ms: _Optional[int] = ..., node_ip_address: _Optional[str] = ..., instance_type_name: _Optional[str] = ..., node_activity: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PlacementConstraint(_message.Message):
    __slots__ = ("anti_affinity", "affinity")
    class Label(_message.Message):
        __slots__ = ("label_name", "label_value")
        LABEL_NAME_FIELD_NUMBER: _ClassVar[int]
        LABEL_VALUE_FIELD_NUMBER: _ClassVar[int]
        label_name: str
        label_value: str
        def __init__(self, label_name: _Optional[str] = ..., label_value: _Optional[str] = ...) -> None: ...
    ANTI_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    AFFINITY_FIELD_NUMBER: _ClassVar[int]
    anti_affinity: PlacementConstraint.Label
    affinity: PlacementConstraint.Label
    def __init__(self, anti_affinity: _Optional[_Union[PlacementConstraint.Label, _Mapping]] = ..., affinity: _Optional[_Union[PlacementConstraint.Label, _Mapping]] = ...) -> None: ...

class LabelConstraint(_message.Message):
    __slots__ = ("label_key", "operator", "label_values")
    LABEL_KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LABEL_VALUES_FIELD_NUMBER: _ClassVar[int]
    label_key: str
    operator: int
    label_values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, label_key: _Optional[str] = ..., operator: _Optional[int] = ..., label_values: _Optional[_Iterable[str]] = ...) -> None: ...

class LabelSelector(_message.Message):
    __slots__ = ("label_constraints",)
    LABEL_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    label_constraints: _containers.RepeatedCompositeFieldContainer[LabelConstraint]
    def __init__(self, label_constraints: _Optional[_Iterable[_Union[LabelConstraint, _Mapping]]] = ...) -> None: ...

class ResourceRequest(_message.Message):
    __slots__ = ("resources_bundle", "placement_constraints", "label_selectors")
    class ResourcesBundleEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RESOURCES_BUNDLE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    resources_bundle: _containers.ScalarMap[str, float]
    placement_constraints: _containers.RepeatedCompositeFieldContainer[PlacementConstraint]
    label_selectors: _containers.RepeatedCompositeFieldContainer[LabelSelector]
    def __init__(self, resources_bundle: _Optional[_Mapping[str, float]] = ..., placement_constraints: _Optional[_Iterable[_Union[PlacementConstraint, _Mapping]]] = ..., label_selectors: _Optional[_Iterable[_Union[LabelSelector, _Mapping]]] = ...) -> None: ...

class ResourceRequestByCount(_message.Message):
    __slots__ = ("request", "count")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    request: ResourceRequest
    count: int
    def __init__(self, request: _Optional[_Union[ResourceRequest, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class BundleSelector(_message.Message):
    __slots__ = ("resource_requests",)
    RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    def __init__(self, resource_requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ...) -> None: ...

class GangResourceRequest(_message.Message):
    __slots__ = ("requests", "details", "bundle_selectors")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    details: str
    bundle_selectors: _containers.RepeatedCompositeFieldContainer[BundleSelector]
    def __init__(self, requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., details: _Optional[str] = ..., bundle_selectors: _Optional[_Iterable[_Union[BundleSelector, _Mapping]]] = ...) -> None: ...

class ClusterResourceConstraint(_message.Message):
    __slots__ = ("resource_requests",)
    RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequestByCount]
    def __init__(self, resource_requests: _Optional[_Iterable[_Union[ResourceRequestByCount, _Mapping]]] = ...) -> None: ...

class ClusterResourceState(_message.Message):
    __slots__ = ("cluster_resource_state_version", "last_seen_autoscaler_state_version", "node_states", "pending_resource_requests", "pending_gang_resource_requests", "cluster_resource_constraints", "cluster_session_name")
    CLUSTER_RESOURCE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AUTOSCALER_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_STATES_FIELD_NUMBER: _ClassVar[int]
    PENDING_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_GANG_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_RESOURCE_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster_resource_state_version: int
    last_seen_autoscaler_state_version: int
    node_states: _containers.RepeatedCompositeFieldContainer[NodeState]
    pending_resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequestByCount]
    pending_gang_resource_requests: _containers.RepeatedCompositeFieldContainer[GangResourceRequest]
    cluster_resource_constraints: _containers.RepeatedCompositeFieldContainer[ClusterResourceConstraint]
    cluster_session_name: str
    def __init__(self, cluster_resource_state_version: _Optional[int] = ..., last_seen_autoscaler_state_version: _Optional[int] = ..., node_states: _Optional[_Iterable[_Union[NodeState, _Mapping]]] = ..., pending_resource_requests: _Optional[_Iterable[_Union[ResourceRequestByCount, _Mapping]]] = ..., pending_gang_resource_requests: _Optional[_Iterable[_Union[GangResourceRequest, _Mapping]]] = ..., cluster_resource_constraints: _Optional[_Iterable[_Union[ClusterResourceConstraint, _Mapping]]] = ..., cluster_session_name: _Optional[str] = ...) -> None: ...

class GetClusterResourceStateReply(_message.Message):
    __slots__ = ("cluster_resource_state",)
    CLUSTER_RESOURCE_STATE_FIELD_NUMBER: _ClassVar[int]
    cluster_resource_state: ClusterResourceState
    def __init__(self, cluster_resource_state: _Optional[_Union[ClusterResourceState, _Mapping]] = ...) -> None: ...

class PendingInstanceRequest(_message.Message):
    __slots__ = ("instance_type_name", "ray_node_type_name", "count", "request_ts")
    INSTANCE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TS_FIELD_NUMBER: _ClassVar[int]
    instance_type_name: str
    ray_node_type_name: str
    count: int
    request_ts: int
    def __init__(self, instance_type_name: _Optional[str] = ..., ray_node_type_name: _Optional[str] = ..., count: _Optional[int] = ..., request_ts: _Optional[int] = ...) -> None: ...

class FailedInstanceRequest(_message.Message):
    __slots__ = ("instance_type_name", "ray_node_type_name", "count", "reason", "start_ts", "failed_ts")
    INSTANCE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    START_TS_FIELD_NUMBER: _ClassVar[int]
    FAILED_TS_FIELD_NUMBER: _ClassVar[int]
    instance_type_name: str
    ray_node_type_name: str
    count: int
    reason: str
    start_ts: int
    failed_ts: int
    def __init__(self, instance_type_name: _Optional[str] = ..., ray_node_type_name: _Optional[str] = ..., count: _Optional[int] = ..., reason: _Optional[str] = ..., start_ts: _Optional[int] = ..., failed_ts: _Optional[int] = ...) -> None: ...

class PendingInstance(_message.Message):
    __slots__ = ("instance_type_name", "ray_node_type_name", "instance_id", "ip_address", "details")
    INSTANCE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    instance_type_name: str
    ray_node_type_name: str
    instance_id: str
    ip_address: str
    details: str
    def __init__(self, instance_type_name: _Optional[str] = ..., ray_node_type_name: _Optional[str] = ..., instance_id: _Optional[str] = ..., ip_address: _Optional[str] = ..., details: _Optional[str] = ...) -> None: ...

class AutoscalingState(_message.Message):
    __slots__ = ("last_seen_cluster_resource_state_version", "autoscaler_state_version", "pending_instance_requests", "infeasible_resource_requests", "infeasible_gang_resource_requests", "infeasible_cluster_resource_constraints", "pending_instances", "failed_instance_requests")
    LAST_SEEN_CLUSTER_RESOURCE_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTOSCALER_STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PENDING_INSTANCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_GANG_RESOURCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_CLUSTER_RESOURCE_CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    FAILED_INSTANCE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    last_seen_cluster_resource_state_version: int
    autoscaler_state_version: int
    pending_instance_requests: _containers.RepeatedCompositeFieldContainer[PendingInstanceRequest]
    infeasible_resource_requests: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    infeasible_gang_resource_requests: _containers.RepeatedCompositeFieldContainer[GangResourceRequest]
    infeasible_cluster_resource_constraints: _containers.RepeatedCompositeFieldContainer[ClusterResourceConstraint]
    pending_instances: _containers.RepeatedCompositeFieldContainer[PendingInstance]
    failed_instance_requests: _containers.RepeatedCompositeFieldContainer[FailedInstanceRequest]
    def __init__(self, last_seen_cluster_resource_state_version: _Optional[int] = ..., autoscaler_state_version: _Optional[int] = ..., pending_instance_requests: _Optional[_Iterable[_Union[PendingInstanceRequest, _Mapping]]] = ..., infeasible_resource_requests: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., infeasible_gang_resource_requests: _Optional[_Iterable[_Union[GangResourceRequest, _Mapping]]] = ..., infeasible_cluster_resource_constraints: _Optional[_Iterable[_Union[ClusterResourceConstraint, _Mapping]]] = ..., pending_instances: _Optional[_Iterable[_Union[PendingInstance, _Mapping]]] = ..., failed_instance_requests: _Optional[_Iterable[_Union[FailedInstanceRequest, _Mapping]]] = ...) -> None: ...

class ReportAutoscalingStateRequest(_message.Message):
    __slots__ = ("autoscaling_state",)
    AUTOSCALING_STATE_FIELD_NUMBER: _ClassVar[int]
    autoscaling_state: AutoscalingState
    def __init__(self, autoscaling_state: _Optional[_Union[AutoscalingState, _Mapping]] = ...) -> None: ...

class GetClusterStatusReply(_message.Message):
    __slots__ = ("autoscaling_state", "cluster_resource_state")
    AUTOSCALING_STATE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_RESOURCE_STATE_FIELD_NUMBER: _ClassVar[int]
    autoscaling_state: AutoscalingState
    cluster_resource_state: ClusterResourceState
    def __init__(self, autoscaling_state: _Optional[_Union[AutoscalingState, _Mapping]] = ..., cluster_resource_state: _Optional[_Union[ClusterResourceState, _Mapping]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "reason", "reason_message", "deadline_timestamp_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    reason: int
    reason_message: str
    deadline_timestamp_ms: int
    def __init__(self, node_id: _Optional[bytes] = ..., reason: _Optional[int] = ..., reason_message: _Optional[str] = ..., deadline_timestamp_ms: _Optional[int] = ...) -> None: ...

class DrainNodeReply(_message.Message):
    __slots__ = ("is_accepted", "rejection_reason_message")
    IS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    is_accepted: bool
    rejection_reason_message: str
    def __init__(self, is_accepted: bool = ..., rejection_reason_message: _Optional[str] = ...) -> None: ...

class GcsStatus(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class NodeDeathInfo(_message.Message):
    __slots__ = ("reason", "reason_message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: int
    reason_message: str
    def __init__(self, reason: _Optional[int] = ..., reason_message: _Optional[str] = ...) -> None: ...

class GcsNodeInfo(_message.Message):
    __slots__ = ("node_id", "node_manager_address", "node_manager_port", "state", "instance_id", "node_type_name", "start_time_ms", "end_time_ms", "is_head_node", "labels", "death_info", "temp_dir")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_MANAGER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NODE_MANAGER_PORT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    END_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    IS_HEAD_NODE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DEATH_INFO_FIELD_NUMBER: _ClassVar[int]
    TEMP_DIR_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    node_manager_address: str
    node_manager_port: int
    state: int
    instance_id: str
    node_type_name: str
    start_time_ms: int
    end_time_ms: int
    is_head_node: bool
    labels: _containers.ScalarMap[str, str]
    death_info: NodeDeathInfo
    temp_dir: str
    def __init__(self, node_id: _Optional[bytes] = ..., node_manager_address: _Optional[str] = ..., node_manager_port: _Optional[int] = ..., state: _Optional[int] = ..., instance_id: _Optional[str] = ..., node_type_name: _Optional[str] = ..., start_time_ms: _Optional[int] = ..., end_time_ms: _Optional[int] = ..., is_head_node: bool = ..., labels: _Optional[_Mapping[str, str]] = ..., death_info: _Optional[_Union[NodeDeathInfo, _Mapping]] = ..., temp_dir: _Optional[str] = ...) -> None: ...

class GetAllNodeInfoReply(_message.Message):
    __slots__ = ("status", "node_info_list")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_INFO_LIST_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    node_info_list: _containers.RepeatedCompositeFieldContainer[GcsNodeInfo]
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., node_info_list: _Optional[_Iterable[_Union[GcsNodeInfo, _Mapping]]] = ...) -> None: ...

class GetClusterIdReply(_message.Message):
    __slots__ = ("status", "cluster_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    cluster_id: bytes
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., cluster_id: _Optional[bytes] = ...) -> None: ...

class CheckAliveReply(_message.Message):
    __slots__ = ("status", "ray_version")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RAY_VERSION_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    ray_version: str
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., ray_version: _Optional[str] = ...) -> None: ...

class UnregisterNodeRequest(_message.Message):
    __slots__ = ("node_id", "node_death_info")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_DEATH_INFO_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    node_death_info: NodeDeathInfo
    def __init__(self, node_id: _Optional[bytes] = ..., node_death_info: _Optional[_Union[NodeDeathInfo, _Mapping]] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    def __init__(self, node_id: _Optional[bytes] = ...) -> None: ...

class ActorTableData(_message.Message):
    __slots__ = ("actor_id", "state", "address", "name", "class_name")
    ACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    actor_id: bytes
    state: int
    address: Address
    name: str
    class_name: str
    def __init__(self, actor_id: _Optional[bytes] = ..., state: _Optional[int] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., name: _Optional[str] = ..., class_name: _Optional[str] = ...) -> None: ...

class GetAllActorInfoReply(_message.Message):
    __slots__ = ("status", "actor_table_data")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_TABLE_DATA_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    actor_table_data: _containers.RepeatedCompositeFieldContainer[ActorTableData]
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., actor_table_data: _Optional[_Iterable[_Union[ActorTableData, _Mapping]]] = ...) -> None: ...

class ErrorTableData(_message.Message):
    __slots__ = ("job_id", "type", "error_message", "timestamp")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    job_id: bytes
    type: str
    error_message: str
    timestamp: float
    def __init__(self, job_id: _Optional[bytes] = ..., type: _Optional[str] = ..., error_message: _Optional[str] = ..., timestamp: _Optional[float] = ...) -> None: ...

class ReportJobErrorRequest(_message.Message):
    __slots__ = ("job_error",)
    JOB_ERROR_FIELD_NUMBER: _ClassVar[int]
    job_error: ErrorTableData
    def __init__(self, job_error: _Optional[_Union[ErrorTableData, _Mapping]] = ...) -> None: ...

class InternalKVPutRequest(_message.Message):
    __slots__ = ("key", "value", "overwrite", "namespace")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    overwrite: bool
    namespace: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., overwrite: bool = ..., namespace: _Optional[bytes] = ...) -> None: ...

class InternalKVGetRequest(_message.Message):
    __slots__ = ("key", "namespace")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    namespace: bytes
    def __init__(self, key: _Optional[bytes] = ..., namespace: _Optional[bytes] = ...) -> None: ...

class InternalKVGetReply(_message.Message):
    __slots__ = ("status", "value")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    status: GcsStatus
    value: bytes
    def __init__(self, status: _Optional[_Union[GcsStatus, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class ResourceDemand(_message.Message):
    __slots__ = ("shape", "num_ready_requests_queued", "num_infeasible_requests_queued", "backlog_size", "label_selectors")
    class ShapeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NUM_READY_REQUESTS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    NUM_INFEASIBLE_REQUESTS_QUEUED_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SIZE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTORS_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.ScalarMap[str, float]
    num_ready_requests_queued: int
    num_infeasible_requests_queued: int
    backlog_size: int
    label_selectors: _containers.RepeatedCompositeFieldContainer[LabelSelector]
    def __init__(self, shape: _Optional[_Mapping[str, float]] = ..., num_ready_requests_queued: _Optional[int] = ..., num_infeasible_requests_queued: _Optional[int] = ..., backlog_size: _Optional[int] = ..., label_selectors: _Optional[_Iterable[_Union[LabelSelector, _Mapping]]] = ...) -> None: ...

class ResourceLoad(_message.Message):
    __slots__ = ("resource_demands",)
    RESOURCE_DEMANDS_FIELD_NUMBER: _ClassVar[int]
    resource_demands: _containers.RepeatedCompositeFieldContainer[ResourceDemand]
    def __init__(self, resource_demands: _Optional[_Iterable[_Union[ResourceDemand, _Mapping]]] = ...) -> None: ...

class ResourcesData(_message.Message):
    __slots__ = ("node_id", "resource_load_by_shape")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_LOAD_BY_SHAPE_FIELD_NUMBER: _ClassVar[int]
    node_id: bytes
    resource_load_by_shape: ResourceLoad
    def __init__(self, node_id: _Optional[bytes] = ..., resource_load_by_shape: _Optional[_Union[ResourceLoad, _Mapping]] = ...) -> None: ...

class GetResourceLoadReply(_message.Message):
    __slots__ = ("resources",)
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: ResourcesData
    def __init__(self, resources: _Optional[_Union[ResourcesData, _Mapping]] = ...) -> None: ...
