"""Numbers of rtnetlink and RDMA netlink, named as in the kernel's headers.

Sources: include/uapi/linux/{rtnetlink,if_link,if_addr}.h and include/uapi/rdma/rdma_netlink.h; the tests compare
them with the installed headers where there are some. Only what is used here or by the emulated kernel.
"""

from __future__ import annotations

from typing import Final

NETLINK_ROUTE: Final = 0
NETLINK_RDMA: Final = 20

# Multicast groups, as the bits of the mask that a subscription takes.
RTMGRP_LINK: Final = 0x1
RTMGRP_IPV4_IFADDR: Final = 0x10
RTMGRP_IPV4_ROUTE: Final = 0x40
RTMGRP_IPV6_IFADDR: Final = 0x100
RTMGRP_IPV6_ROUTE: Final = 0x400

RTM_NEWLINK: Final = 16
RTM_DELLINK: Final = 17
RTM_GETLINK: Final = 18
RTM_SETLINK: Final = 19
RTM_NEWADDR: Final = 20
RTM_DELADDR: Final = 21
RTM_GETADDR: Final = 22
RTM_NEWROUTE: Final = 24
RTM_DELROUTE: Final = 25
RTM_GETROUTE: Final = 26
RTM_NEWLINKPROP: Final = 108
RTM_DELLINKPROP: Final = 109

IFLA_ADDRESS: Final = 1
IFLA_BROADCAST: Final = 2
IFLA_IFNAME: Final = 3
IFLA_MTU: Final = 4
IFLA_LINK: Final = 5
IFLA_MASTER: Final = 10
IFLA_OPERSTATE: Final = 16
IFLA_LINKINFO: Final = 18
IFLA_IFALIAS: Final = 20
IFLA_NUM_VF: Final = 21
IFLA_VFINFO_LIST: Final = 22
IFLA_NET_NS_FD: Final = 28
IFLA_EXT_MASK: Final = 29
IFLA_CARRIER: Final = 33
IFLA_LINK_NETNSID: Final = 37
IFLA_PHYS_PORT_NAME: Final = 38
IFLA_NEW_NETNSID: Final = 45
IFLA_NEW_IFINDEX: Final = 49
IFLA_MIN_MTU: Final = 50
IFLA_MAX_MTU: Final = 51
IFLA_PROP_LIST: Final = 52
IFLA_ALT_IFNAME: Final = 53
IFLA_PERM_ADDRESS: Final = 54
IFLA_PARENT_DEV_NAME: Final = 56
IFLA_INFO_KIND: Final = 1

RTEXT_FILTER_VF: Final = 1 << 0
RTEXT_FILTER_SKIP_STATS: Final = 1 << 3

IFLA_VF_INFO: Final = 1
IFLA_VF_MAC: Final = 1
IFLA_VF_VLAN: Final = 2
IFLA_VF_TX_RATE: Final = 3
IFLA_VF_SPOOFCHK: Final = 4
IFLA_VF_LINK_STATE: Final = 5
IFLA_VF_RATE: Final = 6
IFLA_VF_RSS_QUERY_EN: Final = 7
IFLA_VF_STATS: Final = 8
IFLA_VF_TRUST: Final = 9
IFLA_VF_IB_NODE_GUID: Final = 10
IFLA_VF_IB_PORT_GUID: Final = 11
IFLA_VF_VLAN_LIST: Final = 12
IFLA_VF_BROADCAST: Final = 13
IFLA_VF_LINK_STATE_AUTO: Final = 0
IFLA_VF_LINK_STATE_ENABLE: Final = 1
IFLA_VF_LINK_STATE_DISABLE: Final = 2

IFF_UP: Final = 0x1
IFF_LOWER_UP: Final = 0x10000
ARPHRD_ETHER: Final = 1
ARPHRD_INFINIBAND: Final = 32

IFA_ADDRESS: Final = 1
IFA_LOCAL: Final = 2
IFA_LABEL: Final = 3
IFA_BROADCAST: Final = 4
IFA_FLAGS: Final = 8
IFA_F_NODAD: Final = 0x02

RT_SCOPE_UNIVERSE: Final = 0
RT_SCOPE_LINK: Final = 253
RT_SCOPE_HOST: Final = 254
RT_TABLE_MAIN: Final = 254
RT_TABLE_LOCAL: Final = 255
RTPROT_KERNEL: Final = 2
RTPROT_STATIC: Final = 4
RTN_UNICAST: Final = 1
RTNH_F_ONLINK: Final = 4
RTA_DST: Final = 1
RTA_OIF: Final = 4
RTA_GATEWAY: Final = 5
RTA_PRIORITY: Final = 6
RTA_MULTIPATH: Final = 9
RTA_TABLE: Final = 15
RTA_VIA: Final = 18

RDMA_NL_NLDEV: Final = 5
RDMA_NLDEV_CMD_GET: Final = 1
RDMA_NLDEV_CMD_SET: Final = 2
RDMA_NLDEV_CMD_PORT_GET: Final = 5
RDMA_NLDEV_CMD_SYS_GET: Final = 6
RDMA_NLDEV_CMD_SYS_SET: Final = 7
RDMA_NLDEV_CMD_RES_QP_GET: Final = 10

RDMA_NLDEV_ATTR_DEV_INDEX: Final = 1
RDMA_NLDEV_ATTR_DEV_NAME: Final = 2
RDMA_NLDEV_ATTR_PORT_INDEX: Final = 3
RDMA_NLDEV_ATTR_CAP_FLAGS: Final = 4
RDMA_NLDEV_ATTR_FW_VERSION: Final = 5
RDMA_NLDEV_ATTR_NODE_GUID: Final = 6
RDMA_NLDEV_ATTR_SYS_IMAGE_GUID: Final = 7
RDMA_NLDEV_ATTR_SUBNET_PREFIX: Final = 8
RDMA_NLDEV_ATTR_LID: Final = 9
RDMA_NLDEV_ATTR_SM_LID: Final = 10
RDMA_NLDEV_ATTR_LMC: Final = 11
RDMA_NLDEV_ATTR_PORT_STATE: Final = 12
RDMA_NLDEV_ATTR_PORT_PHYS_STATE: Final = 13
RDMA_NLDEV_ATTR_DEV_NODE_TYPE: Final = 14
RDMA_NLDEV_ATTR_RES_QP: Final = 19
RDMA_NLDEV_ATTR_RES_QP_ENTRY: Final = 20
RDMA_NLDEV_ATTR_RES_LQPN: Final = 21
RDMA_NLDEV_ATTR_RES_TYPE: Final = 26
RDMA_NLDEV_ATTR_RES_STATE: Final = 27
RDMA_NLDEV_ATTR_RES_PID: Final = 28
RDMA_NLDEV_ATTR_RES_KERN_NAME: Final = 29
RDMA_NLDEV_ATTR_NDEV_INDEX: Final = 50
RDMA_NLDEV_ATTR_NDEV_NAME: Final = 51
RDMA_NLDEV_SYS_ATTR_NETNS_MODE: Final = 66
RDMA_NLDEV_ATTR_DEV_PROTOCOL: Final = 67
RDMA_NLDEV_NET_NS_FD: Final = 68


def rdma_type(command: int, client: int = RDMA_NL_NLDEV) -> int:
    """RDMA_NL_GET_TYPE: the message type of a client's command."""
    return (client << 10) + command
