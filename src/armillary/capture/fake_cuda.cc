// A CUDA without devices, for a PyTorch that was built for CPUs: current device, streams and events are numbers, and
// whoever called `install` learns of every event. Tensors have no memory (FakeTensor), so no kernel is ever reached.
//
// Two objects of PyTorch are replaced: the guard of device type CUDA, and the hooks that say whether there is CUDA.
// Without the first, autograd ends the process at the first tensor of type cuda; without the second the engine has no
// streams. See PyTorch's issues 92627, 122109, 157869 and 191293.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/core/Generator.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <new>

using namespace c10;

namespace {

enum Kind { RECORD, WAIT, STREAM, EVENT, DEVICE };  // what `noted` is told: see capture/library.py
typedef void (*Noted)(int kind, int64_t event, int64_t stream);

constexpr int MOST = 64;  // devices of a host
int devices = 1;
Noted noted = nullptr;
std::atomic<int64_t> streams{1}, events{1};
thread_local int current = 0;
thread_local int64_t stream_of[MOST] = {0};

int index_of(Device device) { return device.index() < 0 ? current : device.index(); }
Device on(int index) { return Device(DeviceType::CUDA, static_cast<DeviceIndex>(index)); }
void tell(int kind, int64_t event, int64_t stream) {
  if (noted) noted(kind, event, stream);
}

struct Guard : impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device device) const override {
    Device before = on(current);
    uncheckedSetDevice(device);
    return before;
  }
  Device getDevice() const override { return on(current); }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override { current = index_of(device); }
  Stream getStream(Device device) const override {
    return Stream(Stream::UNSAFE, on(index_of(device)), stream_of[index_of(device)]);
  }
  Stream getDefaultStream(Device device) const override { return Stream(Stream::UNSAFE, on(index_of(device)), 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream getNewStream(Device device, int) const override {
    return Stream(Stream::UNSAFE, on(index_of(device)), streams++);
  }
  Stream exchangeStream(Stream stream) const override {
    int index = stream.device_index();
    Stream before(Stream::UNSAFE, on(index), stream_of[index]);
    stream_of[index] = stream.id();
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(devices); }
  void record(void** event, const Stream& stream, const DeviceIndex, const EventFlag) const override {
    if (!*event) *event = reinterpret_cast<void*>(static_cast<intptr_t>(events++));
    tell(RECORD, reinterpret_cast<intptr_t>(*event), stream.id());
  }
  void block(void* event, const Stream& stream) const override {
    if (event) tell(WAIT, reinterpret_cast<intptr_t>(event), stream.id());
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& stream) const override { tell(STREAM, 0, stream.id()); }
  void synchronizeEvent(void* event) const override { tell(EVENT, reinterpret_cast<intptr_t>(event), 0); }
  void synchronizeDevice(const DeviceIndex) const override { tell(DEVICE, 0, 0); }
  double elapsedTime(void*, void*, const DeviceIndex) const override { return 1.0; }
};

// Random numbers of a device, which nobody sees. It has no dispatch key: the tensor or the device that it is used with
// decides where an operator goes.
struct Numbers : GeneratorImpl {
  explicit Numbers(int index) : GeneratorImpl(on(index), DispatchKeySet()) {}
  uint64_t value = 0, place = 0;
  void set_current_seed(uint64_t seed) override { value = seed; }
  void set_offset(uint64_t offset) override { place = offset; }
  uint64_t get_offset() const override { return place; }
  uint64_t current_seed() const override { return value; }
  uint64_t seed() override { return value; }
  void set_state(const TensorImpl&) override {}
  intrusive_ptr<TensorImpl> get_state() const override {
    return at::zeros({16}, at::kByte).getIntrusivePtr();  // as long as that of Philox
  }
  void graphsafe_set_state(const intrusive_ptr<GeneratorImpl>&) override {}
  intrusive_ptr<GeneratorImpl> graphsafe_get_state() const override {
    return intrusive_ptr<GeneratorImpl>::reclaim(clone_impl());
  }
  GeneratorImpl* clone_impl() const override {
    auto made = new Numbers(device_.index());
    made->value = value;
    made->place = place;
    return made;
  }
};

at::Generator numbers(DeviceIndex index) { return at::make_generator<Numbers>(index < 0 ? current : index); }

struct Hooks : at::CUDAHooksInterface {
  void init() const override {}
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override {
    static at::Generator all[MOST];
    int at = index < 0 ? current : index;
    if (!all[at].defined()) all[at] = numbers(index);
    return all[at];
  }
  at::Generator getNewGenerator(DeviceIndex index) const override { return numbers(index); }
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return devices; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(devices); }
  DeviceIndex current_device() const override { return static_cast<DeviceIndex>(current); }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(current); }
  void setCurrentDevice(DeviceIndex device) const override { current = device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = static_cast<DeviceIndex>(current);
    current = device;
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
};

Guard guard;

// 1 is flash attention, 2 memory-efficient attention: what a GPU takes of 16-bit tensors without a mask, and of others.
int64_t attention(const at::Tensor& query, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>& mask,
                  double, bool, std::optional<double>, bool) {
  auto type = query.scalar_type();
  return (type == at::kBFloat16 || type == at::kHalf) && !mask.has_value() ? 1 : 2;
}

}  // namespace

namespace at::native {
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &attention)
}

extern "C" int armillary_install(int count, Noted whom) {
  // The hooks are constructed where PyTorch's own are, so they must not be larger.
  if (count < 1 || count > MOST || sizeof(Hooks) != sizeof(at::CUDAHooksInterface)) return 0;
  devices = count;
  noted = whom;
  impl::device_guard_impl_registry[1].store(&guard);
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks();
  return 1;
}

extern "C" int64_t armillary_stream() { return stream_of[current]; }
