#pragma OPENCL EXTENSION cl_khr_fp64 : enable
inline long double_to_long(double x)
{
    return isnan(x) ? 0 : x >= 0x1p63 ? LONG_MAX : x < -0x1p63 ? LONG_MIN : (long)x;
}
