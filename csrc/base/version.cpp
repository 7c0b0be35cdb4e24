// Keeps the static library non-empty while topics grow.
namespace fastshard {
extern const char* const kCoreVersion;
const char* const kCoreVersion = "0.1.0";
}  // namespace fastshard
