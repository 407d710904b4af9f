import gzip

import pytest

from armillary.base.errors import InputError
from armillary.evidence.calibrate.nccl_device import choose
from armillary.evidence.calibrate.nccl_tables import read_file
from armillary.evidence.calibrate.samples import Sample

RANKS = "".join(
    f"#  Rank {rank:2} Group  0 Pid {rank} on    host{rank // 2} device  {rank % 2} [0x1b] NVIDIA H100 80GB HBM3\n"
    for rank in range(4)
)
HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
           0             0     float     sum      -1     0.10    0.00    0.00      0     0.10    0.00    0.00      0
        1024           256     float     sum      -1    20.50    0.05    0.07      0    19.00    0.05    0.07      0
     1048576        262144     float     sum      -1   100.00   10.49   15.73      0    99.00   10.59   15.89      0
"""
LOG = "# nThread 1 nGpus 1 minBytes 8\n# Using devices\n" + RANKS + HEADER + ROWS


def test_a_log_tells_who_took_part_and_what_it_took(tmp_path):
    path = tmp_path / "all_gather_perf.log"
    path.write_text("NCCL version 2.29.2\n" + LOG + "# Avg bus bandwidth : 3\n")
    assert read_file(path) == [
        Sample("NVIDIA H100 80GB HBM3", "all-gather", 2, 2, 1024, 20500.0),
        Sample("NVIDIA H100 80GB HBM3", "all-gather", 2, 2, 1048576, 100000.0),
    ]


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[1,0]<stdout>", "0: "])
def test_prefixes_of_launchers_are_taken_off(prefix, tmp_path):
    path = tmp_path / "alltoall.log"
    path.write_text("".join(prefix + line + "\n" for line in LOG.splitlines()))
    assert [sample.operation for sample in read_file(path)] == ["all-to-all"] * 2


def test_several_runs_in_a_file_keep_their_operations_and_ranks(tmp_path):
    one = "# nThread 1 nGpus 2 minBytes 8\n"
    text = "# Collective test starting: sendrecv_perf\n" + LOG
    text += "srun ./build/reduce_scatter_perf -b 8\n" + one + HEADER + ROWS
    path = tmp_path / "job.out"
    path.write_text(text)
    found = read_file(path)
    assert [(s.operation, s.per_node, s.nodes) for s in found[::2]] == [
        ("send", 2, 2),
        ("reduce-scatter", 2, 1),
    ]


def test_the_older_table_without_a_root_is_read(tmp_path):
    path = tmp_path / "all_reduce.log"
    path.write_text(
        "# nThread 1 nGpus 8\n#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
        "  1024  256  float  sum  30.1  0.03  0.06  0e+00  30.0  0.03  0.06  0e+00\n"
    )
    assert read_file(path) == [Sample("", "all-reduce", 8, 1, 1024, 30100.0)]
    assert read_file(path, per_node=4)[0].nodes == 2


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("notes.log", "hello\n", "no times found"),
        ("job.log", LOG, "which program"),
        ("all_reduce.log", HEADER + ROWS, "who takes part"),
        ("all_reduce.log", LOG.replace("on    host1 device  1", "on    host2 device  1"), "as many on each"),
        ("all_reduce.log", LOG.replace("100.00 ", "0.1000 "), "GB/s, but algbw says 10.49"),
        ("all_reduce.log", LOG.replace("15.73      0", "15.73     37"), "#wrong: got 37, expected 0"),
        (
            "all_reduce.log",
            LOG[:-60],
            "12: the row has 6 values, expected at least 8, up to busbw: it is cut short",
        ),
        ("all_reduce.log", LOG + "  2097152  5242", "has 2 values, expected at least 8"),
        ("t.csv", "ngpus,size_bytes,oop_us,x\n1,1024,9,1\n", "times of 1 GPU"),
        (
            "t.csv",
            "ngpus,size_bytes,oop_us,x\n8,1.5,9,1\n",
            "t.csv:2: size_bytes: got '1.5', expected a whole",
        ),
        (
            "t.csv",
            "ngpus,size_bytes,oop_us,oop_busbw_GBps\n8,1e6,10,100\n8,1e6,10,5\n",
            "t.csv:3: all-reduce of",
        ),
        ("t.csv", "a,b,c,d\n1,2,3,4\n", "unknown columns"),
        ("t.csv", "ngpus,bytes,oop_us,x\n8,1,2,3\n", "there is no 'size_bytes' (did you mean 'bytes'?)"),
        ("t.csv", "# from\nngpus;size_bytes;oop_us\n", "t.csv:2: columns are separated by ';', expected ','"),
        ("t.csv", "ngpus,size_bytes,oop_us,x\n", "no rows"),
        ("t.csv", "ngpus,size_bytes,oop_us,x\n8,1024,fast,1\n", "t.csv:2: oop_us: got 'fast'"),
        ("t.csv", "ngpus,size_bytes,oop_us,x\n8,1024\n", "t.csv:2: 2 values, expected 4"),
        ("t.csv", "device,op,dtype,gpus,bytes,us\na100,al_reduce,half,8,1,1\n", "op: got 'al_reduce'"),
    ],
)
def test_junk_is_refused_by_one_clear_error(name, text, problem, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_file(path)
    assert problem in str(caught.value)
    assert name in str(caught.value)


def test_what_is_no_text_is_refused(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"\xff\xfe\x00"))
    with pytest.raises(InputError, match="is not UTF-8"):
        read_file(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_file(tmp_path / "nothing")


def test_packed_tables_and_comments_are_read(tmp_path):
    path = tmp_path / "x.csv.gz"
    text = (
        "# source\n# 8 GPUs a node\nngpus,size_bytes,oop_us,oop_busbw_GBps\n16,1024,30,0.06\n2,1024,9,0.11\n"
    )
    path.write_bytes(gzip.compress(text.encode()))
    assert [(s.per_node, s.nodes, s.ns) for s in read_file(path)] == [(8, 2, 30e3), (2, 1, 9e3)]


def test_the_device_is_found_by_the_name_of_the_driver():
    samples = [Sample("NVIDIA H100 80GB HBM3", "all-reduce", 8, 1, 1, 1.0), Sample("", "send", 2, 1, 1, 1.0)]
    name, mine = choose(samples, None)
    assert (name, len(mine)) == ("h100-sxm", 2)
    assert choose([Sample("NVIDIA A100-SXM4-40GB", "send", 2, 1, 1, 1.0)], None)[0] == "a100-sxm-40"
    assert choose([Sample("", "send", 2, 1, 1, 1.0)], "b200")[0] == "b200-sxm"


@pytest.mark.parametrize(
    ("device", "chosen", "problem"),
    [
        ("", None, "do not name a known device"),
        ("a100", "h10", "did you mean"),
        ("a100", "h100", "have none"),
    ],
)
def test_an_unclear_device_is_refused(device, chosen, problem):
    with pytest.raises(InputError, match=problem):
        choose([Sample(device, "send", 2, 1, 1, 1.0)], chosen)


def test_several_devices_need_a_choice():
    samples = [Sample(device, "send", 2, 1, 1, 1.0) for device in ("a100_sxm", "h100_sxm")]
    with pytest.raises(InputError, match="several devices"):
        choose(samples, None)


def test_of_times_in_place_and_out_of_place_by_one_name_the_last_are_read(tmp_path):
    path = tmp_path / "trace_a100_AR_GPU2_LUT"
    path.write_text(
        "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n1e6,1,float,50000,20,40000,25\n"
    )
    assert read_file(path) == [Sample("a100", "all-reduce", 2, 1, 1_000_000, 40e3)]
